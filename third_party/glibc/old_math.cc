// Lets libraries that were compiled with a later glibc run on glibc 2.28 (OLD_GLIBC=on of the Makefile, for releases).
//
// glibc 2.29 added versions of exp, log and pow that do not report errors by matherr. The three functions of this file
// call the earlier versions, so that a library does not require glibc 2.29. Both versions compute the same bits, except
// the sign of a NaN, on which no code of this program depends (old_test.sh compares them).
#if defined(__x86_64__)
#define HT_BEFORE "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define HT_BEFORE "GLIBC_2.17"
#else
#error "OLD_GLIBC=on: the first version of glibc for this architecture is not known here; add it to third_party/glibc"
#endif

// Sets the name of a function in the object file to exp, log or pow. Its C++ name is another one, because the compiler
// has functions of its own with these names. Without hidden visibility, the dynamic linker would also use these
// functions in place of the earlier versions.
#define HT_NAMED(name) __asm__(name) __attribute__((visibility("hidden")))

extern "C" {
double ht_exp_before(double x);
double ht_log_before(double x);
double ht_pow_before(double x, double y);
__asm__(".symver ht_exp_before, exp@" HT_BEFORE);
__asm__(".symver ht_log_before, log@" HT_BEFORE);
__asm__(".symver ht_pow_before, pow@" HT_BEFORE);

double ht_exp(double x) HT_NAMED("exp");
double ht_log(double x) HT_NAMED("log");
double ht_pow(double x, double y) HT_NAMED("pow");
double ht_exp(double x) { return ht_exp_before(x); }
double ht_log(double x) { return ht_log_before(x); }
double ht_pow(double x, double y) { return ht_pow_before(x, y); }
}
