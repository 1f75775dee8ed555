// expect: error: .?(#error )?.?colls needs exceptions.*fatal error: .?colls/the_error_above_says_why
// errors: 2
// flags: -fno-exceptions
#include <colls/colls.hpp>
#include <colls/world.hpp>
