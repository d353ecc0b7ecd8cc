// crew_main.cc: runs a Crew with measurements from a table. Prints the number of active threads at the end of each
// period of 20 seconds. Arguments:
//
//   1. the size of the team
//   2. the number of CPUs that 1, 2, 4 … threads get, separated by commas; semicolons separate the periods
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "team.h"

int main(int, char **arguments) {
  hetero::Crew crew(std::atoi(arguments[1]));
  std::stringstream times(arguments[2]);
  double now = 0;
  for (std::string text; std::getline(times, text, ';');) {
    std::vector<double> gets;
    std::stringstream list(text);
    for (std::string v; std::getline(list, v, ',');) gets.push_back(std::atof(v.c_str()));
    constexpr double window = 0.1;
    int last = 0, same = 0;
    for (double end = now + 20; now < end || (same < 15 && now < end + 20);
         now += window) { // a period ends only after the end of a comparison
      size_t i = 0;
      while (1 << (i + 1) <= crew.active()) i++;
      crew.judge(now, window, window * gets[i]);
      same = crew.active() == last ? same + 1 : 0;
      last = crew.active();
    }
    std::printf("%d ", last);
  }
  std::printf("\n");
}
