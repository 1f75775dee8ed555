// Which RDMA device a GPU takes, in trees of /sys as machines have them: made here, with the bridges that count.
#include "catch.hpp"

#include "made_tree.hpp"

#include <colls/cards/detail/nearest_card.hpp>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using colls::detail::rdma::is_allowed;
using colls::detail::rdma::names_some;
using colls::detail::rdma::pci_distance;
using colls::detail::rdma::pci_tree;
using made_sysfs::made_tree;

using names = std::vector<std::string>;

/// Eight GPUs, each behind a switch of its own with a card; and two cards for storage behind another port, named
/// between the others.
void dgx_h100(made_tree& t) {
    const char* const buses[] = {"1b", "43", "52", "61", "9d", "c3", "d1", "df"};
    const char* const cards[] = {"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"};
    for (int i = 0; i < 8; ++i) {
        const std::string b = buses[i], up = "pci0000:" + b + "/0000:" + b + ":01.0/0000:" + b + ":02.0";
        t.gpu(up + "/0000:" + b + ":03.0", "0000:" + b + ":10.0", i / 4);
        t.card(up + "/0000:" + b + ":04.0", "0000:" + b + ":20.0", i / 4, cards[i]);
    }
    t.card("pci0000:29/0000:29:01.0", "0000:29:10.0", 0, "mlx5_1");
    t.card("pci0000:a9/0000:a9:01.0", "0000:a9:10.0", 1, "mlx5_7");
}
const names all_of_dgx = {
    "mlx5_0", "mlx5_1", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_9", "mlx5_10", "mlx5_11"};

}  // namespace

TEST_CASE("nearest card: behind switches each GPU takes the card of its switch", "[cards]") {
    made_tree t;
    dgx_h100(t);
    CHECK(
        t.taken(all_of_dgx) == names{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"});
    const pci_tree tree = t.tree();
    CHECK(tree.between(tree.path_of("0000:1b:10.0"), tree.path_of_card("mlx5_0")).kind == pci_distance::same_switch);
    CHECK(tree.between(tree.path_of("0000:1b:10.0"), tree.path_of_card("mlx5_1")).kind == pci_distance::same_node);
    CHECK(tree.between(tree.path_of("0000:1b:10.0"), tree.path_of_card("mlx5_6")).kind == pci_distance::other_node);
    // CUDA writes the domain with eight digits, and letters as it likes.
    CHECK(tree.path_of("00000000:1B:10.0") == tree.path_of("0000:1b:10.0"));
    // The card of a switch is missing: the GPU takes one of its node.
    const names without = {"mlx5_1", "mlx5_3", "mlx5_6", "mlx5_7"};
    CHECK(t.taken(without) == names{"mlx5_1", "mlx5_3", "mlx5_3", "mlx5_1", "mlx5_6", "mlx5_6", "mlx5_7", "mlx5_6"});
}

TEST_CASE("nearest card: a switch with two GPUs and two cards gives each its own", "[cards]") {
    made_tree t;
    for (const std::string b : {"10", "80"}) {
        const std::string up = "pci0000:" + b + "/0000:" + b + ":01.0/0000:" + b + ":02.0";
        for (const std::string i : {"3", "4"}) {
            t.gpu(up + "/0000:" + b + ":0" + i + ".0", "0000:" + b + ":1" + i + ".0", 0);
            t.card(up + "/0000:" + b + ":0" + (i == "3" ? "5" : "6") + ".0", "0000:" + b + ":2" + i + ".0", 0,
                "mlx5_" + b + i);
        }
    }
    CHECK(t.taken({"mlx5_103", "mlx5_104", "mlx5_803", "mlx5_804"}) ==
          names{"mlx5_103", "mlx5_104", "mlx5_803", "mlx5_804"});
    // Fewer bridges are nearer, below one port, too.
    made_tree deep;
    deep.gpu("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0", "0000:13:00.0", 0);
    deep.card("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0/0000:15:00.0", "0000:16:00.0", 0, "deep");
    deep.card("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:02.0", "0000:17:00.0", 0, "shallow");
    CHECK(deep.taken({"deep", "shallow"}) == names{"shallow"});
    // A way below the port is nearer than a shorter one through the host bridge.
    deep.card("pci0000:10", "0000:10:05.0", 0, "bridge");
    CHECK(deep.taken({"deep", "bridge"}) == names{"deep"});
}

TEST_CASE("nearest card: without switches GPUs spread over the cards of their node", "[cards]") {
    made_tree t;
    for (int i = 0; i < 8; ++i) {
        const std::string b = std::to_string(10 + i);
        t.gpu("pci0000:" + b + "/0000:" + b + ":01.0", "0000:" + b + ":02.0", i / 4);
    }
    for (int i = 0; i < 4; ++i) {
        const std::string b = std::to_string(30 + i);
        t.card("pci0000:" + b + "/0000:" + b + ":01.0", "0000:" + b + ":02.0", i / 2, "mlx5_" + std::to_string(i));
    }
    const names each{"mlx5_0", "mlx5_1", "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_2", "mlx5_3"};
    CHECK(t.taken({"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}) == each);
    std::size_t at = 0, sharing = 0;
    CHECK(t.tree().nearest("0000:15:02.0", {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}, at, &sharing).at(at) == "mlx5_3");
    CHECK(sharing == 4);
    t.tree().nearest("0000:77:00.0", {"mlx5_0"}, at, &sharing);
    CHECK(sharing == 8);
    made_tree().tree().nearest("0000:77:00.0", {"mlx5_0"}, at, &sharing);
    CHECK(sharing == 1);
    t.gpu("pci0000:09/0000:09:01.0", "0000:09:02.0", 0, "0x1a03");  // that of the server's own screen
    CHECK(t.taken({"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}) == each);
}

TEST_CASE("nearest card: in a virtual machine whose PCI is flat GPUs spread over all cards", "[cards]") {
    made_tree t;
    for (int i = 0; i < 8; ++i) t.gpu("pci0000:00", "0000:00:1" + std::to_string(i) + ".0", -1);
    for (int i = 0; i < 4; ++i)
        t.card("pci0000:00", "0000:00:0" + std::to_string(4 + i) + ".0", -1, "efa_" + std::to_string(i));
    const names taken = t.taken({"efa_0", "efa_1", "efa_2", "efa_3"});
    CHECK(taken == names{"efa_0", "efa_1", "efa_2", "efa_3", "efa_0", "efa_1", "efa_2", "efa_3"});
    // Each on a host bridge of its own, and without a NUMA node.
    made_tree apart;
    for (int i = 0; i < 4; ++i) {
        apart.gpu("pci000" + std::to_string(i) + ":00", "000" + std::to_string(i) + ":00:00.0", -1);
        apart.card("pci010" + std::to_string(i) + ":00", "010" + std::to_string(i) + ":00:02.0", -1,
            "mlx5_" + std::to_string(i));
    }
    const pci_tree tree = apart.tree();
    CHECK(tree.between(tree.path_of("0000:00:00.0"), tree.path_of_card("mlx5_0")).kind == pci_distance::other_node);
    CHECK(apart.taken({"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}) == names{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"});
}

TEST_CASE("nearest card: one card serves all GPUs, and a device of software is the farthest", "[cards]") {
    made_tree t;
    for (int i = 0; i < 4; ++i)
        t.gpu("pci0000:1" + std::to_string(i) + "/0000:1" + std::to_string(i) + ":01.0",
            "0000:1" + std::to_string(i) + ":02.0", i / 2);
    t.card("pci0000:40/0000:40:01.0", "0000:40:02.0", 1, "mlx5_0");
    t.soft("rxe0");
    CHECK(t.taken({"rxe0", "mlx5_0"}) == names(4, "mlx5_0"));
    CHECK(t.taken({"rxe0"}) == names(4, "rxe0"));
    CHECK(t.taken({}) == names(4, "none"));
    // A GPU that the tree does not have, as in a container: all cards are equal.
    std::size_t at = 9;
    CHECK(t.tree().nearest("0000:77:00.0", {"rxe0", "mlx5_0"}, at) == names{"rxe0", "mlx5_0"});
    CHECK(at < 2);
}

TEST_CASE("nearest card: by the cores of its NUMA node", "[cards]") {
    made_tree t;
    t.card("pci0000:10", "0000:10:00.0", 0, "mlx5_0");
    t.card("pci0000:20", "0000:20:00.0", 1, "mlx5_1");
    t.card("pci0000:30", "0000:30:00.0", -1, "mlx5_2");
    std::string many = "0";  // more than a line of 64 bytes
    for (int c = 2; c < 200; c += 2) many += "," + std::to_string(c);
    t.node(0, many);
    t.node(1, "1,3");
    t.soft("rxe0");
    const names cards = {"mlx5_0", "0000:20:00.0", "mlx5_2", "rxe0"};
    const auto near = [&](const char* cores) {
        return t.tree().near_cores(colls::detail::rdma::cores_of_list(std::istringstream(cores)), cards);
    };
    CHECK(near("198") == names{"mlx5_0"});
    CHECK(near("3") == names{"0000:20:00.0"});
    CHECK(near("0-3") == names{"mlx5_0", "0000:20:00.0"});
    CHECK(near("5") == cards);
    CHECK(near("") == cards);
    // As many as the type has, of a list that ends with anything.
    const auto in = [](const char* list) {
        const cpu_set_t all = colls::detail::rdma::cores_of_list(std::istringstream(list));
        return std::pair(CPU_COUNT(&all), CPU_ISSET(CPU_SETSIZE - 1, &all) != 0);
    };
    CHECK(in("1020-70000") == std::pair(4, true));
    CHECK(in("1024,1023") == std::pair(1, true));
    CHECK(in("2-1,5\n") == std::pair(1, false));
    CHECK(in("3;1023") == std::pair(1, false));
}

TEST_CASE("nearest card: GPUs are controllers for graphics or computing, of NVIDIA", "[cards]") {
    made_tree t;
    const auto with_class = [&](const char* address, const char* is) {
        t.gpu("pci0000:10", address, 0);
        std::ofstream(t.root() + "/bus/pci/devices/" + address + "/class") << is << "\n";
    };
    with_class("0000:10:04.0", "0x030200");
    with_class("0000:10:03.0", "0x030000");
    with_class("0000:10:02.0", "0x040300");  // its sound
    with_class("0000:10:01.0", "0x068000");  // a switch of NVLink
    t.gpu("pci0000:10", "0000:10:05.0", 0, "0x1002");
    std::ofstream(t.root() + "/bus/pci/devices/.hidden") << "x";
    CHECK(t.tree().gpus() == names{"0000:10:03.0", "0000:10:04.0"});
    CHECK(pci_tree("/nowhere").gpus().empty());
    // Two devices of which one is a bridge of the other one's way.
    const std::string up = "/x/pci0000:10/0000:10:01.0", below = up + "/0000:11:00.0";
    CHECK(t.tree().between(up, below).kind == pci_distance::same_switch);
    CHECK(t.tree().between(up, below).bridges == 1);
    CHECK(t.tree().between(below, up).bridges == 1);
    CHECK(t.tree().between(below, below).bridges == 0);
    CHECK(t.tree().between(below, below) < t.tree().between(up, below));
}

TEST_CASE("COLLS_VERBS_DEVICE: names, patterns and what is excluded", "[cards]") {
    CHECK(is_allowed("mlx5_0", "mlx5_0"));
    CHECK_FALSE(is_allowed("mlx5_0", "mlx5_01"));
    CHECK(is_allowed("mlx5_0, mlx5_3", "mlx5_3"));
    CHECK_FALSE(is_allowed("mlx5_0,mlx5_3", "mlx5_1"));
    CHECK(is_allowed("mlx5_*", "mlx5_11"));
    CHECK(is_allowed("mlx5_[3-6]", "mlx5_4"));
    CHECK_FALSE(is_allowed("mlx5_[3-6]", "mlx5_7"));
    CHECK(is_allowed("^mlx5_bond*", "mlx5_3"));
    CHECK_FALSE(is_allowed("^mlx5_bond*", "mlx5_bond_0"));
    CHECK_FALSE(is_allowed("mlx5_*,^mlx5_1", "mlx5_1"));
    CHECK_FALSE(is_allowed("^mlx5_1,mlx5_*", "mlx5_1"));
    CHECK(is_allowed("mlx5_*,^mlx5_1", "mlx5_2"));
    CHECK(is_allowed(",", "mlx5_2"));
    CHECK((names_some("*") && names_some("^mlx5_1, mlx5_?")));
    CHECK_FALSE((names_some("") || names_some("^mlx5_1, ^mlx5_2") || names_some(",")));
}
