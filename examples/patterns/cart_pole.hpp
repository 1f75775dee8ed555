// The cart-pole problem (Barto, Sutton and Anderson 1983), a policy for it, and the policy gradient (Williams 1992).
#pragma once

#include <colls/types.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace example {

/// Weights of position, speed, angle and angular speed, and a bias: the log-odds of pushing to the right.
using policy = std::array<double, 5>;

struct step {
    std::array<float, 4> state;  // each scaled to about -1 to 1
    float reward;
    float probability;  // of the action, under the policy that acted
    std::int32_t action;
    std::int32_t last;  // 1: the episode ends here
    friend bool operator==(const step&, const step&) = default;
};

/// A step in a quarter of the bytes: the reward is 1, and a state of 8 bits is precise enough.
struct packed_step {
    std::array<std::int8_t, 4> state;
    colls::half probability;
    std::int8_t action, last;
};
static_assert(sizeof(step) == 32 && sizeof(packed_step) == 8);

inline std::vector<packed_step> pack(const std::vector<step>& steps) {
    std::vector<packed_step> out;
    for (const step& s : steps) {
        out.push_back(
            {{}, colls::half(s.probability), static_cast<std::int8_t>(s.action), static_cast<std::int8_t>(s.last)});
        for (std::size_t i = 0; i < 4; ++i)
            out.back().state[i] = static_cast<std::int8_t>(std::lround(std::clamp(s.state[i], -1.27f, 1.27f) * 100));
    }
    return out;
}
inline std::vector<step> unpack(const std::vector<packed_step>& steps) {
    std::vector<step> out;
    for (const packed_step& s : steps) {
        out.push_back({{}, 1, s.probability, s.action, s.last});
        for (std::size_t i = 0; i < 4; ++i) out.back().state[i] = static_cast<float>(s.state[i]) / 100;
    }
    return out;
}

/// The probability of pushing to the right.
inline double right(const policy& weights, const std::array<float, 4>& state) {
    double odds = weights[4];
    for (std::size_t i = 0; i < 4; ++i) odds += weights[i] * static_cast<double>(state[i]);
    return 1 / (1 + std::exp(-odds));
}

/// Appends the steps of one episode, of 200 at most. `number` decides all its random choices.
inline void play(const policy& weights, std::uint64_t number, std::vector<step>& steps) {
    constexpr double gravity = 9.8, cart = 1.0, pole = 0.1, half_length = 0.5, force = 10, time = 0.02;
    std::mt19937_64 random(number * 0x9e3779b97f4a7c15u + 1);
    const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    double s[4];
    for (double& v : s) v = uniform() * 0.1 - 0.05;
    for (int t = 0; t < 200; ++t) {
        const std::array<float, 4> seen{static_cast<float>(s[0] / 2.4), static_cast<float>(s[1] / 3),
            static_cast<float>(s[2] / 0.21), static_cast<float>(s[3] / 3)};
        const double p = right(weights, seen);
        const int action = uniform() < p;
        const double push = action == 1 ? force : -force, sine = std::sin(s[2]), cosine = std::cos(s[2]);
        const double pressed = (push + pole * half_length * s[3] * s[3] * sine) / (cart + pole);
        const double turn =
            (gravity * sine - cosine * pressed) / (half_length * (4.0 / 3 - pole * cosine * cosine / (cart + pole)));
        const double go = pressed - pole * half_length * turn * cosine / (cart + pole);
        const double change[] = {s[1], go, s[3], turn};
        for (int i = 0; i < 4; ++i) s[i] += time * change[i];
        const bool over = std::abs(s[0]) > 2.4 || std::abs(s[2]) > 0.21 || t == 199;
        steps.push_back({seen, 1, static_cast<float>(action == 1 ? p : 1 - p), action, over});
        if (over) return;
    }
}

/// One step up the policy gradient of the discounted returns. The experience is of an earlier policy: steps that are
/// less likely now count less (the truncated importance weights of Espeholt et al. 2018).
inline void learn(policy& weights, const std::vector<step>& experience) {
    if (experience.empty()) return;
    std::vector<double> returns(experience.size());
    double mean = 0, square = 0, after = 0;
    for (std::size_t i = experience.size(); i-- > 0;) {
        after = static_cast<double>(experience[i].reward) + (experience[i].last == 1 ? 0 : 0.99 * after);
        returns[i] = after;
        mean += after;
        square += after * after;
    }
    const double count = static_cast<double>(experience.size());
    mean /= count;
    const double deviation = std::sqrt(std::max(square / count - mean * mean, 1e-12));
    policy gradient{};
    for (std::size_t i = 0; i < experience.size(); ++i) {
        const step& s = experience[i];
        const double p = right(weights, s.state), now = s.action == 1 ? p : 1 - p;
        const double weight = std::min(1.0, now / static_cast<double>(s.probability)) * (returns[i] - mean) / deviation;
        for (std::size_t k = 0; k < 5; ++k)
            gradient[k] += weight * (s.action - p) * (k < 4 ? static_cast<double>(s.state[k]) : 1);
    }
    for (std::size_t k = 0; k < 5; ++k) weights[k] += 4.0 * gradient[k] / count;
}

}  // namespace example
