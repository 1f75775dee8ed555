#include "network.hpp"

#include "../input.hpp"
#include "json_text.hpp"
#include "nccl_topology.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace tool {

namespace {

using nlohmann::json;
namespace sim = colls::simulation;

/// An integer of the file that counts or numbers things.
int count_in(const json& value, const std::string& what) {
    if (!value.is_number_integer()) throw std::runtime_error(fmt::format("{} is no integer", what));
    const double x = value.get<double>();
    if (x < 0 || x > std::numeric_limits<int>::max())
        throw std::runtime_error(
            fmt::format("{} is {}: it must be from 0 to {}", what, value.dump(), std::numeric_limits<int>::max()));
    return value.get<int>();
}

/// An object of the file whose members are asked for by name; a member that nothing asks for is refused.
class object {
public:
    object(const json& from, std::string name, const std::vector<std::string_view>& known)
        : from_(from), name_(std::move(name)) {
        if (!from.is_object()) throw std::runtime_error(fmt::format("{} is not an object", name_));
        for (const auto& [key, value] : from.items())
            if (std::find(known.begin(), known.end(), key) == known.end())
                throw std::runtime_error(
                    fmt::format("{} has '{}'; it may have: {}", name_, key, fmt::join(known, ", ")));
    }
    const json& at(const std::string& key) const {
        if (!from_.contains(key)) throw std::runtime_error(fmt::format("{} lacks '{}'", name_, key));
        return from_.at(key);
    }
    int integer(const std::string& key) const { return count_in(at(key), fmt::format("{}: '{}'", name_, key)); }
    double number(const std::string& key) const {
        if (!at(key).is_number()) throw std::runtime_error(fmt::format("{}: '{}' is no number", name_, key));
        return at(key).get<double>();
    }
    double number(const std::string& key, double otherwise) const {
        return from_.contains(key) ? number(key) : otherwise;
    }
    /// Not below 0.
    double positive(const std::string& key, double otherwise) const {
        const double x = number(key, otherwise);
        if (!(x >= 0)) throw std::runtime_error(fmt::format("{}: '{}' is below 0", name_, key));
        return x;
    }
    std::string text(const std::string& key, const std::string& otherwise) const {
        if (!from_.contains(key)) return otherwise;
        if (!at(key).is_string()) throw std::runtime_error(fmt::format("{}: '{}' is no text", name_, key));
        return at(key).get<std::string>();
    }
    bool truth(const std::string& key, bool otherwise) const {
        if (!from_.contains(key)) return otherwise;
        if (!at(key).is_boolean()) throw std::runtime_error(fmt::format("{}: '{}' is not true or false", name_, key));
        return at(key).get<bool>();
    }
    const json& list(const std::string& key) const {
        if (!at(key).is_array()) throw std::runtime_error(fmt::format("{}: '{}' is no list", name_, key));
        return at(key);
    }
    sim::link link() const { return {number("latency_us") * 1e-6, number("gb_s") * 1e9}; }
    sim::link link(const std::string& key) const { return object(at(key), key, {"latency_us", "gb_s"}).link(); }

private:
    const json& from_;
    std::string name_;
};

sim::topology flat_of(const object& o) { return sim::flat(o.integer("ranks"), o.link("link")); }
sim::topology two_level_of(const object& o) {
    return sim::two_level(o.integer("nodes"), o.integer("per_node"), o.link("inside"), o.link("rail"));
}
sim::topology fat_tree_of(const object& o) {
    std::vector<sim::tree_level> levels;
    for (const json& each : o.list("levels")) {
        const object level(each, "a level", {"down", "up", "latency_us", "gb_s"});
        levels.push_back({level.integer("down"), level.integer("up"), level.link()});
    }
    if (levels.empty()) throw std::runtime_error("a fat tree has one level or more");
    const std::string how = o.text("spread", "by_destination");
    if (how != "by_destination" && how != "hashed")
        throw std::runtime_error(fmt::format("'spread' is by_destination or hashed, not '{}'", how));
    return sim::fat_tree(levels, how == "hashed" ? sim::spread::hashed : sim::spread::by_destination);
}
sim::topology torus_of(const object& o) {
    std::vector<int> sides;
    for (const json& side : o.list("sides")) sides.push_back(count_in(side, "a side of the torus"));
    if (sides.empty()) throw std::runtime_error("a torus has one side or more, as [8, 8]");
    return sim::torus(sides, o.link("link"));
}
sim::topology dragonfly_of(const object& o) {
    return sim::dragonfly({o.integer("groups"), o.integer("routers"), o.integer("ranks"), o.integer("global"),
        o.link("rank_link"), o.link("local_link"), o.link("global_link")});
}
sim::topology graph_of(const object& o) {
    std::vector<sim::cable> cables;
    for (const json& each : o.list("links")) {
        const object l(each, "a link", {"from", "to", "latency_us", "gb_s", "both_ways"});
        cables.push_back({l.integer("from"), l.integer("to"), l.link(), l.truth("both_ways", true)});
    }
    return sim::graph(o.integer("ranks"), cables);
}

sim::topology nccl_of(const object& o) {
    const std::string file = o.text("file", "");
    std::ifstream in(file);
    if (!in) throw std::runtime_error(fmt::format("'file': '{}' cannot be opened", file));
    std::ostringstream xml;
    xml << in.rdbuf();
    try {
        return nccl_topology(xml.str(), {o.integer("hosts"), o.number("latency_us") * 1e-6,
                                            o.number("network_latency_us") * 1e-6, o.number("cpu_gb_s", 10) * 1e9});
    } catch (const std::exception& e) {
        throw std::runtime_error(fmt::format("{}: {}", file, e.what()));
    }
}

struct kind_of_network {
    std::string_view name;
    std::vector<std::string_view> members;
    sim::topology (*make)(const object&);
};
const std::vector<kind_of_network>& kinds() {
    static const std::vector<kind_of_network> all{
        {"flat", {"ranks", "link"}, flat_of},
        {"two_level", {"nodes", "per_node", "inside", "rail"}, two_level_of},
        {"fat_tree", {"levels", "spread"}, fat_tree_of},
        {"torus", {"sides", "link"}, torus_of},
        {"dragonfly", {"groups", "routers", "ranks", "global", "rank_link", "local_link", "global_link"}, dragonfly_of},
        {"graph", {"ranks", "links"}, graph_of},
        {"nccl", {"file", "hosts", "latency_us", "network_latency_us", "cpu_gb_s"}, nccl_of},
    };
    return all;
}

network network_of(const json& from) {
    if (!from.is_object()) throw std::runtime_error("this is not an object");
    const std::string kind =
        from.contains("kind") && from["kind"].is_string() ? from["kind"].get<std::string>() : std::string("graph");
    std::vector<std::string> names;
    for (const kind_of_network& k : kinds()) {
        names.emplace_back(k.name);
        if (k.name != kind) continue;
        std::vector<std::string_view> members = k.members;
        members.insert(members.end(), {"kind", "gamma_ns", "overhead_us", "buffered", "chunk_kb"});
        const object o(from, "the network", members);
        const bool buffered = o.truth("buffered", false);
        if (!buffered && o.positive("chunk_kb", 0) > 0) throw std::runtime_error("'chunk_kb' needs 'buffered': true");
        const network made{k.make(o), o.positive("gamma_ns", 0) * 1e-9, o.positive("overhead_us", 0) * 1e-6, buffered,
            o.positive("chunk_kb", buffered ? 512 : 0) * 1024};
        if (made.topology.ranks() < 2) throw std::runtime_error("a network joins two ranks or more");
        return made;
    }
    throw std::runtime_error(input::unknown("kind", kind, names));
}

}  // namespace

network read_network(const std::string& file) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error(fmt::format("{} cannot be opened", file));
    try {
        std::ostringstream read;
        read << in.rdbuf();
        const std::string text = read.str();
        // A '<' first, perhaps behind a byte order mark: NCCL's own file, of one host.
        if (const std::size_t first = text.find_first_of("<{["); first != std::string::npos && text[first] == '<')
            return {nccl_topology(text, {.latency = 0.5e-6, .network_latency = 2e-6})};
        return network_of(json::parse(text));
    } catch (const std::exception& e) {
        throw std::runtime_error(fmt::format("{}: {}", file, without_exception_names(e.what())));
    }
}

}  // namespace tool
