#include "nccl_topology.hpp"

#include "exchange/xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tool {

namespace {

namespace sim = colls::simulation;
using exchange::element;

/// Bytes a second of one NVLink, by compute capability: the figures of NCCL.
double nvlink_bandwidth(int sm) {
    const std::pair<int, double> known[] = {{100, 40.1e9}, {90, 20.6e9}, {80, 20e9}, {70, 20e9}};
    if (sm == 86) return 12e9;
    for (const auto& [from, bandwidth] : known)
        if (sm >= from) return bandwidth;
    return 18e9;
}
/// The rate of one link of Infinity Fabric (xGMI), by architecture: the figures of RCCL.
double xgmi_bandwidth(const element& gpu) {
    const auto named = gpu.attributes.find("gcn");
    if (named == gpu.attributes.end()) return gpu.number("sm") >= 94 ? 48e9 : 36e9;
    const std::string_view gcn = named->second, number = gcn.substr(gcn.starts_with("gfx") ? 3 : 0);
    return number.starts_with("94") || number.starts_with("95") ? 48e9 : number.starts_with("90a") ? 36e9 : 24e9;
}
std::string text_or(const element& e, const char* attribute, const char* otherwise) {
    const auto found = e.attributes.find(attribute);
    return found == e.attributes.end() ? otherwise : found->second;
}
/// The rate of a PCIe link, as NCCL counts it. A guest's system often does not know lanes and speed: then NCCL takes 16
/// lanes, and 8 GT/s.
double pci_bandwidth(const element& pci) {
    const std::pair<double, double> known[] = {
        {2.5, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}};  // 100 Mb/s
    const double said = std::strtod(text_or(pci, "link_speed", "").c_str(), nullptr);
    double lane = 60;
    for (const auto& [transfers, speed] : known)
        if (said == transfers) lane = speed;
    const int width = std::atoi(text_or(pci, "link_width", "0").c_str());
    return (width > 0 ? width : 16) * lane * 1e9 / 80;
}

/// What a file may contain that has been thought of here, with or without an effect: the attributes of each element.
const std::map<std::string, std::set<std::string>> known_elements = {
    {"system", {"version"}},
    {"cpu", {"host_hash", "numaid", "affinity", "arch", "vendor", "familyid", "modelid"}},
    {"pci", {"busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width",
                "keep"}},
    {"gpu", {"dev", "sm", "gcn", "arch", "rank", "gdr", "keep", "mnnvl", "partition_mode"}},
    {"nvlink", {"target", "count", "tclass"}},
    {"xgmi", {"target", "count", "tclass"}},
    {"c2c", {"bw", "count"}},
    {"pcilink", {"target"}},
    {"nic", {"keep"}},
    {"net", {"name", "dev", "latency", "speed", "port", "guid", "maxconn", "gdr", "coll", "keep", "net"}},
};
void warn_of_unknown(const element& e, std::set<std::string>& warnings) {
    const auto known = known_elements.find(e.name);
    if (known == known_elements.end()) {
        warnings.insert(fmt::format("<{}> is not known, and is left out", e.name));
        return;
    }
    for (const auto& [name, value] : e.attributes)
        if (!known->second.contains(name))
            warnings.insert(fmt::format("the attribute {} of <{}> is not known, and is left out", name, e.name));
    for (const element& child : e.children) warn_of_unknown(child, warnings);
}

/// The nodes that a file describes, GPUs first, by host and `dev`. The processors that have one `host_hash` are a host.
class machines {
public:
    explicit machines(const element& system) {
        for (const element& cpu : system.children)
            if (cpu.name == "cpu") find_gpus(cpu, host_of(cpu));
        std::ranges::sort(gpus_);
        if (gpus_.empty()) throw std::runtime_error("there is no <gpu> in a <pci> of a <cpu>");
        nodes_ = gpus();
        for (std::size_t i = 0; i < gpus_.size(); ++i) gpu_at_[{gpus_[i].host, gpus_[i].bus}] = static_cast<int>(i);
        std::vector<std::pair<int, int>> cpus;  // host, node
        for (const element& cpu : system.children) {
            if (cpu.name != "cpu") continue;
            const int h = host_of(cpu);
            cpus.emplace_back(h, nodes_++);
            for (const element& child : cpu.children) add(child, {h, cpus.back().second}, cpus.back().second);
        }
        for (std::size_t a = 0; a < cpus.size(); ++a)
            for (std::size_t b = a + 1; b < cpus.size(); ++b)
                if (cpus[a].first == cpus[b].first) between_cpus_.push_back({cpus[a].second, cpus[b].second});
        join_switches();
        if (links_left_out_ > 0)
            fmt::print(stderr, "colls: {} links of GPUs lead to devices that the file does not describe: left out\n",
                links_left_out_);
    }

    int gpus() const { return static_cast<int>(gpus_.size()); }
    int nodes() const { return nodes_; }
    int hosts() const { return static_cast<int>(hosts_.size()); }
    /// Node numbers count within the file. Of several kinds of links between two nodes the widest counts.
    std::vector<sim::cable> cables() const {
        std::map<std::pair<int, int>, sim::cable> widest;
        for (const auto& [at, bandwidth] : links_) {
            const auto& [from, to, kind] = at;
            const sim::cable c{from, to, {0, bandwidth}, kind != link_kind::between_gpus};
            const auto [found, is_new] = widest.try_emplace({from, to}, c);
            if (!is_new && found->second.each.bandwidth < bandwidth) found->second = c;
        }
        std::vector<sim::cable> all;
        for (const auto& [ends, c] : widest) all.push_back(c);
        return all;
    }
    /// The node at which each card is, its number in its host, and its bytes a second.
    struct card {
        int at, number;
        double bandwidth;
    };
    const std::vector<card>& cards() const { return cards_; }
    const std::vector<std::pair<int, int>>& between_cpus() const { return between_cpus_; }

private:
    enum class link_kind { pci, between_gpus, switched, to_cpu, local };
    struct gpu {
        int host, dev;
        std::string bus;
        auto operator<=>(const gpu&) const = default;
    };
    struct site {
        int host, cpu;
    };

    int host_of(const element& cpu) {
        const std::string hash = text_or(cpu, "host_hash", "");
        const auto at = std::ranges::find(hosts_, hash);
        if (at != hosts_.end()) return static_cast<int>(at - hosts_.begin());
        hosts_.push_back(hash);
        return hosts() - 1;
    }
    void find_gpus(const element& in, int host) {
        for (const element& child : in.children) {
            if (child.name == "gpu" && in.name == "pci")
                gpus_.push_back({host, static_cast<int>(child.number("dev")), in.text("busid")});
            find_gpus(child, host);
        }
    }
    void link(int from, int to, link_kind kind, double bandwidth) { links_[{from, to, kind}] += bandwidth; }
    void add(const element& e, const site& in, int parent) {
        if (e.name == "nic") {
            for (const element& net : e.children)
                if (net.name == "net") {
                    const double said = std::strtod(text_or(net, "speed", "0").c_str(), nullptr);  // Mb/s
                    const int number = cards_of_[in.host]++;
                    cards_.push_back({parent, number, (said > 0 ? said : 10'000) * 1e6 / 8});  // as NCCL takes -1
                }
            return;
        }
        if (e.name != "pci") return;
        const auto known = gpu_at_.find({in.host, e.text("busid")});
        const int node = known != gpu_at_.end() ? known->second : nodes_++;
        if (known == gpu_at_.end()) switch_at_[{in.host, e.text("busid")}] = node;
        link(node, parent, link_kind::pci, pci_bandwidth(e));
        for (const element& child : e.children) {
            add(child, in, node);
            if (child.name == "pcilink") pci_links_.push_back({{in.host, child.text("target")}, node});
            if (child.name != "gpu") continue;
            for (const element& to : child.children) {
                if (to.name == "nvlink")
                    add_nvlink(to, in, node, nvlink_bandwidth(static_cast<int>(child.number("sm"))));
                else if (to.name == "xgmi")
                    add_nvlink(to, in, node, xgmi_bandwidth(child));
                else if (to.name == "c2c")  // its `bw` is in MB/s
                    link(node, in.cpu, link_kind::to_cpu, to.number("count") * to.number("bw") * 1e6);
            }
        }
    }
    /// To another GPU, whose own element has the other direction, to the processor, or to a switch, of which there is
    /// one. A GPU that the file does not describe is one that the job does not use.
    void add_nvlink(const element& to, const site& in, int from, double bandwidth) {
        bandwidth *= to.number("count");
        const std::string kind = text_or(to, "tclass", "");
        const auto target = gpu_at_.find({in.host, to.text("target")});
        if (target != gpu_at_.end()) {
            link(from, target->second, link_kind::between_gpus, bandwidth);
        } else if (kind.starts_with("0x068001")) {
            link(from, in.cpu, link_kind::to_cpu, bandwidth);
        } else if (kind.starts_with("0x0680")) {
            if (nvswitch_ == colls::none) nvswitch_ = nodes_++;
            link(from, nvswitch_, link_kind::switched, bandwidth);
        } else {
            ++links_left_out_;
        }
    }
    /// Ports of one PCIe switch that appears as several.
    void join_switches() {
        for (const auto& [target, node] : pci_links_)
            if (const auto other = switch_at_.find(target); other != switch_at_.end())
                link(node, other->second, link_kind::local, 5000e9);
    }

    std::vector<std::string> hosts_;  // their hashes
    std::vector<gpu> gpus_;
    std::map<std::pair<int, std::string>, int> gpu_at_, switch_at_;  // by host and bus id
    std::vector<std::pair<std::pair<int, std::string>, int>> pci_links_;
    std::map<std::tuple<int, int, link_kind>, double> links_;  // bytes a second
    std::vector<card> cards_;
    std::map<int, int> cards_of_;  // by host: how many
    std::vector<std::pair<int, int>> between_cpus_;
    int nodes_ = 0, nvswitch_ = colls::none, links_left_out_ = 0;
};

}  // namespace

sim::topology nccl_topology(const std::string& xml, const nccl_hosts& hosts) {
    const element system = exchange::read_xml(xml);
    if (system.name != "system") throw std::runtime_error(fmt::format("<system> is expected, not <{}>", system.name));
    std::set<std::string> warnings;
    warn_of_unknown(system, warnings);
    for (const std::string& warning : warnings) fmt::print(stderr, "colls: {}\n", warning);
    const machines one(system);
    if (hosts.count < 1) throw std::runtime_error(fmt::format("there is 1 host or more, not {}", hosts.count));
    if (hosts.count > 1 && one.cards().empty()) throw std::runtime_error("there is no <net>: the hosts are not joined");
    constexpr int most = 1 << 14;  // ranks: a graph keeps something for each pair
    if (hosts.count > most / one.gpus())
        throw std::runtime_error(
            fmt::format("{} hosts of {} GPUs are more than {} ranks", hosts.count, one.gpus(), most));
    // Ranks of all copies of the file, then the other nodes of one copy after another, then the switches.
    const int ranks = hosts.count * one.gpus(), others = one.nodes() - one.gpus(),
              switches = ranks + hosts.count * others;
    std::vector<sim::cable> cables;
    for (int h = 0; h < hosts.count; ++h) {
        const auto number = [&](int node) {
            return node < one.gpus() ? h * one.gpus() + node : ranks + h * others + node - one.gpus();
        };
        for (const sim::cable& c : one.cables())
            cables.push_back({number(c.from), number(c.to), {hosts.latency, c.each.bandwidth}, c.both_ways});
        for (const auto& [a, b] : one.between_cpus())
            cables.push_back({number(a), number(b), {hosts.latency, hosts.between_cpus}});
        for (const machines::card& card : one.cards())
            cables.push_back({number(card.at), switches + card.number, {hosts.network_latency, card.bandwidth}});
    }
    return sim::graph(ranks, cables);
}

}  // namespace tool
