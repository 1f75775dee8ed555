#include "xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace exchange {

namespace {

constexpr std::array<std::pair<std::string_view, char>, 5> entities{
    {{"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}}};

class xml_reader {
public:
    explicit xml_reader(std::string_view text) : text_(text) {}

    element document() {
        if (text_.starts_with("\xFE\xFF") || text_.starts_with("\xFF\xFE"))
            fail("this is UTF-16, and UTF-8 is expected: iconv -f UTF-16 -t UTF-8 converts it");
        takes("\xEF\xBB\xBF");  // the byte order mark of UTF-8
        skip_to_tag();
        element root = next(0);
        skip_to_tag();
        if (at_ < text_.size()) fail("there is something after the document");
        return root;
    }

private:
    long line() const { return 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'); }
    [[noreturn]] void fail(std::string_view what) const {
        throw std::runtime_error(fmt::format("line {}: {}", line(), what));
    }
    bool takes(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }
    void skip_spaces() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    }
    void skip_past(std::string_view word) {
        const std::size_t found = text_.find(word, at_);
        if (found == std::string_view::npos) fail(fmt::format("there is no {}", word));
        at_ = found + word.size();
    }
    void skip_to_tag() {
        for (;;) {
            skip_spaces();
            if (takes("<!--"))
                skip_past("-->");
            else if (takes("<?") || takes("<!"))
                skip_past(">");
            else
                return;
        }
    }
    std::string word() {
        const std::size_t first = at_;
        while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
        if (at_ == first) fail("a name is expected here");
        return std::string(text_.substr(first, at_ - first));
    }
    std::string value(char quote) {
        const std::size_t end = text_.find(quote, at_);
        if (end == std::string_view::npos) fail("a value is not closed");
        std::string found;
        while (at_ < end) {
            bool entity = false;
            for (const auto& [name, letter] : entities)
                if (!entity && takes(name)) found += letter, entity = true;
            if (!entity) found += text_[at_++];
        }
        at_ = end + 1;
        return found;
    }
    element next(int depth) {
        constexpr int deepest = 64;
        if (depth > deepest) fail("the elements are nested too deeply");
        if (!takes("<")) fail("an element is expected here");
        element e{word(), {}, {}, line()};
        for (skip_spaces(); !takes("/>"); skip_spaces()) {
            if (takes(">")) return with_children(std::move(e), depth);
            const std::string attribute = word();
            const char quote = takes("=\"") ? '"' : '\'';
            if (quote == '\'' && !takes("='")) fail("=\" is expected here");
            e.attributes[attribute] = value(quote);
        }
        return e;
    }
    element with_children(element e, int depth) {
        for (skip_to_tag(); !takes("</"); skip_to_tag()) e.children.push_back(next(depth + 1));
        if (word() != e.name) fail(fmt::format("<{}> is not closed", e.name));
        skip_past(">");
        return e;
    }

    std::string_view text_;
    std::size_t at_ = 0;
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
