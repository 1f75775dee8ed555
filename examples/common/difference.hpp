// How far results are from what they should be.
#pragma once

namespace example {

/// The greater of two differences; NaN where one of them is, which std::max would lose. So a comparison with a bound
/// fails where a result is NaN.
inline double worse(double a, double b) { return b <= a ? a : a != a ? a : b; }

}  // namespace example
