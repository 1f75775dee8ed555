#include "xml.hpp"

#include <fmt/format.h>
#include <pugixml.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace exchange {

namespace {

constexpr std::array<std::pair<std::string_view, char>, 5> entities{
    {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}}};

[[noreturn]] void fail(long line, std::string_view what) {
    throw std::runtime_error(fmt::format("line {}: {}", line, what));
}

/// What pugixml has parsed, as elements. A plan and a topology have no text between their elements.
class xml_reader {
public:
    explicit xml_reader(std::string_view text) : text_(text) {}

    element document() {
        if (text_.starts_with("\xFE\xFF") || text_.starts_with("\xFF\xFE"))
            fail(1, "this is UTF-16, and UTF-8 is expected: iconv -f UTF-16 -t UTF-8 converts it");
        // pugixml takes it for the end.
        if (const auto zero = text_.find('\0'); zero != std::string_view::npos) fail(line_at(zero), "a zero byte");
        pugi::xml_document document;
        // A fragment, so that text and further elements beside the root are seen.
        const pugi::xml_parse_result parsed = document.load_buffer(
            text_.data(), text_.size(), pugi::parse_default | pugi::parse_fragment, pugi::encoding_utf8);
        if (!parsed) fail(line_at(static_cast<std::size_t>(parsed.offset)), parsed.description());
        if (!document.first_child()) fail(1, "there is no element");
        element root = read(document.first_child(), 0);
        if (const pugi::xml_node more = document.first_child().next_sibling())
            fail(line_of(more), "there is something after the document");
        return root;
    }

private:
    /// Places are asked for in the order of the text, so lines are counted once.
    long line_at(std::size_t place) {
        const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(counted_to_);
        const auto end =
            text_.begin() + static_cast<std::ptrdiff_t>(std::min(std::max(place, counted_to_), text_.size()));
        line_ += std::count(begin, end, '\n');
        counted_to_ = static_cast<std::size_t>(end - text_.begin());
        return line_;
    }
    long line_of(pugi::xml_node node) { return line_at(static_cast<std::size_t>(node.offset_debug())); }

    element read(pugi::xml_node node, int depth) {
        constexpr int deepest = 64;
        const long line = line_of(node);
        if (node.type() != pugi::node_element) fail(line, "an element is expected here");
        if (depth > deepest) fail(line, "the elements are nested too deeply");
        element e{node.name(), {}, {}, line};
        for (const pugi::xml_attribute attribute : node.attributes())
            e.attributes[attribute.name()] = attribute.value();
        for (const pugi::xml_node child : node.children()) e.children.push_back(read(child, depth + 1));
        return e;
    }

    std::string_view text_;
    std::size_t counted_to_ = 0;
    long line_ = 1;
};

}  // namespace

std::string element::text(const std::string& attribute) const {
    const auto found = attributes.find(attribute);
    if (found == attributes.end())
        throw std::runtime_error(fmt::format("line {}: a <{}> lacks '{}'", line, name, attribute));
    return found->second;
}

double element::number(const std::string& attribute) const {
    const std::string value = text(attribute);
    try {
        return std::stod(value);
    } catch (const std::exception&) {
        throw std::runtime_error(
            fmt::format("line {}: a <{}> has {}=\"{}\", which is not a number", line, name, attribute, value));
    }
}

int element::integer(const std::string& attribute) const {
    const std::string value = text(attribute);
    int found = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), found);
    if (error != std::errc() || end != value.data() + value.size())
        throw std::runtime_error(
            fmt::format("line {}: a <{}> has {}=\"{}\", which is not a whole number", line, name, attribute, value));
    return found;
}

int element::integer_or(const std::string& attribute, int otherwise) const {
    return attributes.contains(attribute) ? integer(attribute) : otherwise;
}

element read_xml(const std::string& text) { return xml_reader(text).document(); }

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        const auto* const entity = std::ranges::find(entities, c, &std::pair<std::string_view, char>::second);
        if (entity == entities.end())
            out += c;
        else
            out += entity->first;
    }
    return out;
}

}  // namespace exchange
