// A schedule played on a topology in the way that the options ask for.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/detail/simulate/played_group.hpp>
#include <colls/detail/simulate/played_messages.hpp>

namespace colls::inline v1::detail {

inline simulation::outcome played(
    const schedule_reader& s, int n, const simulation::topology& t, double bytes, const simulation::options& o) {
    message text;
    text << "colls: simulate: ";
    if (n < 1 || n > t.ranks())
        text << n << " ranks do not fit on a topology of " << t.ranks();
    else if (!s.supports(n))
        text << "the schedule does not support " << n << " ranks";
    else if (!(bytes >= 0 && o.gamma >= 0 && o.overhead >= 0 && o.resolution >= 0))
        text << "bytes, gamma, overhead and resolution are not negative";
    else if (!(o.chunk >= 0 && o.under_way >= 1))
        text << "options.chunk is not negative, and options.under_way is 1 or more";
    else if (o.buffered ? o.in_step : o.chunk > 0)
        text << (o.buffered ? "options.buffered knows no options.in_step" : "options.chunk needs options.buffered");
    else if (o.buffered)
        return played_messages(s, n, t, bytes, o).play();
    else
        return o.in_step ? played_in_step(s, n, t, bytes, o) : played_group(s, n, t, bytes, o, 0, s.rounds(n)).play();
    throw error(errc::invalid_argument, text.text());
}

}  // namespace colls::inline v1::detail

namespace colls::inline v1::simulation {

template <class S>
outcome simulate(const S& s, int n, const topology& t, double bytes, const options& o) {
    return detail::played(detail::reader_of<S>(s), n, t, bytes, o);
}

}  // namespace colls::inline v1::simulation
