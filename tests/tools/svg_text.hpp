// What tests read of a picture: its texts and where they stand, and its lines.
#pragma once

#include "catch.hpp"

#include <cstddef>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace support {

/// A text, and the room that it takes: characters of the usual widths, from the top of capitals to the base line.
struct svg_text {
    std::string words, look;
    double left = 0, right = 0, top = 0, bottom = 0;

    bool meets(const svg_text& other) const {
        return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
    }
};

/// The value of an attribute within an element, and "" where it has none.
inline std::string attribute(std::string_view element, std::string_view name) {
    const std::string key = ' ' + std::string(name) + "=\"";
    const std::size_t at = element.find(key);
    if (at == std::string_view::npos) return {};
    const std::size_t begin = at + key.size();
    return std::string(element.substr(begin, element.find('"', begin) - begin));
}

/// Calls f(element, what follows it up to the next '<', offset of the groups around it) for each element of that name.
template <class F>
void for_each_element(std::string_view svg, std::string_view name, F f) {
    double down = 0;  // groups move their elements down, and do not lie in each other
    for (std::size_t at = 0; (at = svg.find('<', at)) != std::string_view::npos; ++at) {
        const std::size_t end = svg.find('>', at);
        const std::string_view element = svg.substr(at + 1, end - at - 1);
        if (element.starts_with("g ")) {
            const std::string moved = attribute(element, "transform");
            down = moved.empty() ? 0 : std::atof(moved.c_str() + moved.find(' '));
        }
        if (element == "/g") down = 0;
        if (!element.starts_with(std::string(name) + ' ')) continue;
        f(element, svg.substr(end + 1, svg.find('<', end) - end - 1), down);
    }
}

inline std::vector<svg_text> texts_of(std::string_view svg) {
    std::vector<svg_text> all;
    for_each_element(svg, "text", [&](std::string_view element, std::string_view words, double down) {
        svg_text t{std::string(words), attribute(element, "class")};
        for (const auto& [entity, character] :
            {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&amp;", "&"}})
            for (std::size_t at = 0; (at = t.words.find(entity, at)) != std::string::npos; ++at)
                t.words.replace(at, std::string_view(entity).size(), character);
        const double size = std::atof(attribute(element, "font-size").c_str()),
                     x = std::atof(attribute(element, "x").c_str()),
                     y = std::atof(attribute(element, "y").c_str()) + down;
        REQUIRE(size > 0);
        double em = 0;
        for (const char c : t.words)
            em += std::string_view("ijlt.,:;'|()/ ").find(c) != std::string_view::npos ? 0.3 : 0.58;
        const std::string anchor = attribute(element, "text-anchor");
        t.left = x - em * size * (anchor == "end" ? 1 : anchor == "middle" ? 0.5 : 0);
        t.right = t.left + em * size;
        t.top = y - 0.75 * size;
        t.bottom = y;
        if (!t.words.empty()) all.push_back(std::move(t));
    });
    return all;
}

/// No text lies on another, or beyond the edge of the page.
inline void check_texts_are_apart(std::string_view svg) {
    const std::vector<svg_text> all = texts_of(svg);
    double width = 0, height = 0;
    for_each_element(svg, "svg", [&](std::string_view element, std::string_view, double) {
        width = std::atof(attribute(element, "width").c_str());
        height = std::atof(attribute(element, "height").c_str());
    });
    REQUIRE(!all.empty());
    for (std::size_t i = 0; i < all.size(); ++i) {
        INFO(all[i].words);
        CHECK((all[i].left >= 0 && all[i].right <= width && all[i].top >= 0 && all[i].bottom <= height));
        for (std::size_t j = i + 1; j < all.size(); ++j) {
            INFO(all[j].words);
            CHECK_FALSE(all[i].meets(all[j]));
        }
    }
}

/// Lines of a chart: each as the names of its label. No two have the same colour and dash; each has a label.
inline std::vector<std::set<std::string>> lines_of(std::string_view svg) {
    std::vector<std::set<std::string>> all;
    std::set<std::pair<std::string, std::string>> looks;
    const std::vector<svg_text> texts = texts_of(svg);
    for_each_element(svg, "path", [&](std::string_view element, std::string_view, double) {
        const std::string look = attribute(element, "class");
        if (!look.starts_with("line c")) return;
        CHECK(looks.emplace(look, attribute(element, "stroke-dasharray")).second);
        std::string label;
        for (const svg_text& t : texts)
            if (t.look == "label f" + look.substr(6) || t.look == "label over f" + look.substr(6))
                label += (label.empty() ? "" : " ") + t.words;
        INFO(look);
        CHECK_FALSE(label.empty());
        std::set<std::string> names;
        for (std::size_t at = 0; at <= label.size();) {
            const std::size_t end = std::min(label.find(", ", at), label.size());
            names.insert(label.substr(at, end - at));
            at = end + 2;
        }
        all.push_back(std::move(names));
    });
    return all;
}

}  // namespace support
