// Trees of /sys for tests: made in a folder, with the bridges, GPUs and RDMA devices that a test names.
#pragma once

#include <colls/cards/detail/nearest_card.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace made_sysfs {

namespace fs = std::filesystem;
using colls::detail::rdma::pci_tree;

/// A tree of /sys in a folder of its own.
class made_tree {
public:
    made_tree() {
        char name[] = "/tmp/colls_sysfs_XXXXXX";
        if (mkdtemp(name) == nullptr) std::abort();
        root_ = name;
        fs::create_directories(root_ / "bus/pci/devices");
        fs::create_directories(root_ / "class/infiniband");
    }
    made_tree(const made_tree&) = delete;
    ~made_tree() { fs::remove_all(root_); }

    /// `bridges`: from the host bridge on, such as pci0000:15/0000:15:01.0; `node`: of NUMA, -1: it does not say.
    void gpu(const std::string& bridges, const std::string& address, int node, const std::string& vendor = "0x10de") {
        const fs::path at = device(bridges, address, node);
        write(at / "vendor", vendor);
        write(at / "class", "0x030200");
    }
    void card(const std::string& bridges, const std::string& address, int node, const std::string& name) {
        const fs::path at = device(bridges, address, node);
        write(at / "vendor", "0x15b3");
        write(at / "class", "0x020700");
        fs::create_directories(at / "infiniband" / name);
        fs::create_symlink(at / "infiniband" / name, root_ / "class/infiniband" / name);
        fs::create_symlink(at, at / "infiniband" / name / "device");
    }
    /// The cores of a NUMA node, as the system lists them.
    void node(int number, const std::string& cores) {
        const fs::path at = root_ / "devices/system/node" / ("node" + std::to_string(number));
        fs::create_directories(at);
        write(at / "cpulist", cores);
    }
    /// A device of software: no PCI device.
    void soft(const std::string& name) { fs::create_directories(root_ / "class/infiniband" / name); }

    std::string root() const { return root_.string(); }
    pci_tree tree() const { return pci_tree(root_.string()); }
    /// What each GPU takes of these cards.
    std::vector<std::string> taken(const std::vector<std::string>& cards) const {
        std::vector<std::string> all;
        const pci_tree t = tree();
        for (const std::string& g : t.gpus()) {
            std::size_t at = 0;
            const std::vector<std::string> nearest = t.nearest(g, cards, at);
            all.push_back(nearest.empty() ? "none" : nearest.at(at));
        }
        return all;
    }

private:
    static void write(const fs::path& to, const std::string& text) { std::ofstream(to) << text << "\n"; }
    fs::path device(const std::string& bridges, const std::string& address, int node) {
        const fs::path at = root_ / "devices" / bridges / address;
        fs::create_directories(at);
        write(at / "numa_node", std::to_string(node));
        fs::create_symlink(at, root_ / "bus/pci/devices" / address);
        return at;
    }
    fs::path root_;
};

}  // namespace made_sysfs
