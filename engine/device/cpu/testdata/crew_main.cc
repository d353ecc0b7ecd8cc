// crew_main.cc: a Crew on a machine that is a table. Arguments: the size of the team; CPUs that 1, 2, 4 … threads get, separated by
// commas, for 20 seconds each where semicolons separate several. Prints the count at the end of each.
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
         now += window) { // a comparison in progress ends first
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
