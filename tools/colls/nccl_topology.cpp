#include "nccl_topology.hpp"

#include "exchange/xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tool {

namespace {

namespace sim = colls::simulation;
using exchange::element;

/// Bytes a second of one NVLink, by compute capability: the figures of NCCL.
double nvlink_bandwidth(int sm) {
    const std::pair<int, double> known[] = {
        {100, 40.1e9}, {90, 20.6e9}, {86, 12e9}, {80, 20e9}, {70, 20e9}, {60, 18e9}};
    for (const auto& [from, bandwidth] : known)
        if (sm >= from) return bandwidth;
    throw std::runtime_error(fmt::format("a GPU of sm {} has no NVLink", sm));
}
/// Of a PCIe link: NCCL counts 0.75 GB/s for each lane of 8 GT/s, and more in proportion.
double pci_bandwidth(const element& pci) { return pci.number("link_width") * pci.number("link_speed") * 0.75e9 / 8; }

/// The nodes of one host, numbered from 0, GPUs first in the order of `dev`.
class host {
public:
    explicit host(const element& system) {
        for (const element& cpu : system.children)
            if (cpu.name == "cpu") find_gpus(cpu);
        std::ranges::sort(gpus_);
        if (gpus_.empty()) throw std::runtime_error("there is no <gpu> in a <pci> of a <cpu>");
        nodes_ = gpus();
        for (std::size_t i = 0; i < gpus_.size(); ++i) gpu_at_[gpus_[i].second] = static_cast<int>(i);
        std::vector<int> cpus;
        for (const element& cpu : system.children) {
            if (cpu.name != "cpu") continue;
            cpus.push_back(nodes_++);
            for (const element& child : cpu.children) add(child, cpus.back());
        }
        for (std::size_t a = 0; a < cpus.size(); ++a)
            for (std::size_t b = a + 1; b < cpus.size(); ++b) between_cpus_.push_back({cpus[a], cpus[b]});
    }

    int gpus() const { return static_cast<int>(gpus_.size()); }
    int nodes() const { return nodes_; }
    /// Of them, with node numbers of the host; `cards` with the node of the card as `from` and none as `to`.
    const std::vector<sim::cable>& cables() const { return cables_; }
    const std::vector<sim::cable>& cards() const { return cards_; }
    const std::vector<std::pair<int, int>>& between_cpus() const { return between_cpus_; }

private:
    void find_gpus(const element& in) {
        for (const element& child : in.children) {
            if (child.name == "gpu" && in.name == "pci")
                gpus_.emplace_back(static_cast<int>(child.number("dev")), in.text("busid"));
            find_gpus(child);
        }
    }
    void add(const element& e, int parent) {
        if (e.name == "nic") {
            for (const element& net : e.children)
                if (net.name == "net")  // its speed is in Mb/s
                    cards_.push_back({parent, colls::none, {0, net.number("speed") * 1e6 / 8}});
            return;
        }
        if (e.name != "pci") return;
        const auto gpu = gpu_at_.find(e.text("busid"));
        const int node = gpu != gpu_at_.end() ? gpu->second : nodes_++;
        cables_.push_back({node, parent, {0, pci_bandwidth(e)}});
        for (const element& child : e.children) {
            add(child, node);
            if (child.name != "gpu") continue;
            for (const element& nvlink : child.children)
                if (nvlink.name == "nvlink") add_nvlink(nvlink, node, static_cast<int>(child.number("sm")));
        }
    }
    /// To a switch, of which there is one, or to another GPU, whose own element has the other direction.
    void add_nvlink(const element& nvlink, int gpu, int sm) {
        const sim::link each{0, nvlink.number("count") * nvlink_bandwidth(sm)};
        const auto target = gpu_at_.find(nvlink.text("target"));
        if (target != gpu_at_.end()) {
            cables_.push_back({gpu, target->second, each, false});
        } else if (nvlink.text("tclass") == "0x068000") {
            if (nvswitch_ == colls::none) nvswitch_ = nodes_++;
            cables_.push_back({gpu, nvswitch_, each});
        } else {
            throw std::runtime_error(fmt::format(
                "an <nvlink> leads to {}, which is neither a GPU of the host nor an NVSwitch", nvlink.text("target")));
        }
    }

    std::vector<std::pair<int, std::string>> gpus_;  // dev, busid
    std::map<std::string, int> gpu_at_;
    std::vector<sim::cable> cables_, cards_;
    std::vector<std::pair<int, int>> between_cpus_;
    int nodes_ = 0, nvswitch_ = colls::none;
};

}  // namespace

sim::topology nccl_topology(const std::string& xml, const nccl_hosts& hosts) {
    const element system = exchange::read_xml(xml);
    if (system.name != "system") throw std::runtime_error(fmt::format("<system> is wanted, not <{}>", system.name));
    const host one(system);
    if (hosts.count < 1) throw std::runtime_error(fmt::format("there is 1 host or more, not {}", hosts.count));
    if (hosts.count > 1 && one.cards().empty()) throw std::runtime_error("there is no <net>: the hosts are not joined");
    // Ranks of all hosts, then the other nodes of one host after another, then the switches.
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
        for (std::size_t i = 0; i < one.cards().size(); ++i) {
            const sim::cable& card = one.cards()[i];
            cables.push_back(
                {number(card.from), switches + static_cast<int>(i), {hosts.network_latency, card.each.bandwidth}});
        }
    }
    return sim::graph(ranks, cables);
}

}  // namespace tool
