// read_launch, in the environments that Open MPI 4, MPICH 4 and torchrun set, and that Slurm's manual describes.
#include "catch.hpp"

#include "support/says.hpp"
#include "support/shared_block.hpp"

#include <colls/net/detail/forming/launch.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <map>
#include <optional>
#include <set>

using colls::errc;
using colls::launch;
using support::lacks;
using environment = std::map<std::string, std::string>;

namespace {

/// Sets these variables, and unsets all other variables of launchers; restores them at its end.
class only {
public:
    explicit only(const environment& set) {
        for (const std::string prefix : {"COLLS_", "OMPI_", "PMI", "MPI_", "PALS_", "MV2_", "JSM_", "FLUX_", "MPIRUN_",
                 "SLURM_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_"})
            for (char** v = environ; *v; ++v)
                if (std::string(*v).compare(0, prefix.size(), prefix) == 0)
                    remember(std::string(*v).substr(0, std::strcspn(*v, "=")));
        for (const auto& [name, value] : before_) unsetenv(name.c_str());
        for (const auto& [name, value] : set) {
            remember(name);
            setenv(name.c_str(), value.c_str(), 1);
        }
    }
    only(const only&) = delete;
    only& operator=(const only&) = delete;
    ~only() {
        for (const auto& [name, value] : before_) {
            if (value)
                setenv(name.c_str(), value->c_str(), 1);
            else
                unsetenv(name.c_str());
        }
    }

private:
    void remember(const std::string& name) {
        const char* const value = std::getenv(name.c_str());
        before_.emplace(name, value ? std::optional<std::string>(value) : std::nullopt);
    }
    std::map<std::string, std::optional<std::string>> before_;
};

launch read(const environment& set) {
    const only these(set);
    return colls::read_launch();
}
environment with(environment a, const environment& b) {
    for (const auto& [name, value] : b) a[name] = value;
    return a;
}
environment without(environment a, std::initializer_list<const char*> names) {
    for (const char* name : names) a.erase(name);
    return a;
}
/// The text of the invalid_argument that read_launch must throw.
std::string error_of(const environment& set) {
    try {
        read(set);
    } catch (const colls::error& e) {
        CHECK(e.code() == errc::invalid_argument);
        return e.what();
    }
    return "(no error)";
}

const environment own{{"COLLS_RANK", "2"}, {"COLLS_SIZE", "5"}};
const environment torchrun{{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"},
    {"GROUP_RANK", "1"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "none"},
    {"TORCHELASTIC_RESTART_COUNT", "0"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const environment open_mpi{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "6"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "6"}, {"PMIX_NAMESPACE", "1131085825"},
    {"PMIX_RANK", "1"}, {"OMPI_MCA_ess_base_jobid", "1131085825"},
    {"OMPI_MCA_orte_hnp_uri", "1131085824.0;tcp://192.0.2.2:54605"}};
const environment hydra{
    {"PMI_RANK", "4"}, {"PMI_SIZE", "7"}, {"PMI_FD", "8"}, {"MPI_LOCALRANKID", "4"}, {"MPI_LOCALNRANKS", "7"}};
const environment slurm{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "2"},
    {"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_TASK_PID", "1234"},
    {"SLURM_STEP_NODELIST", "rack[03-05,12]"}, {"SLURM_JOB_NODELIST", "rack[02-05,12]"}};

}  // namespace

TEST_CASE("launch: without a launcher this process is rank 0 of 1", "[launch]") {
    const launch l = read({});
    CHECK(l.rank == 0);
    CHECK(l.size == 1);
    CHECK(l.source == "none");
    CHECK(read({{"COLLS_INTERFACE", "eth7"}}).interface_name == "eth7");
}

TEST_CASE("launch: the ports of a job are those below 30000, and each number of them fits", "[launch]") {
    for (const int ports : {1, 16, 9999, 10'000}) {
        std::set<int> first;
        for (int job = 0; job < 50'000; ++job)
            first.insert(colls::detail::port_of_job(std::to_string(job), "token", ports));
        INFO(ports << " ports");
        CHECK(*first.begin() >= 20'000);
        CHECK(*first.rbegin() + ports <= 30'000);
        // The choice is wide: nearly all of what fits, both ends too where it is little.
        CHECK(first.size() >= static_cast<std::size_t>(9 * (10'001 - ports) + 9) / 10);
    }
}

TEST_CASE("launch: reads the COLLS_ variables", "[launch]") {
    const launch l =
        read(with(own, {{"COLLS_LOCAL_RANK", "1"}, {"COLLS_MASTER_ADDR", "fe80::1%eth0"}, {"COLLS_MASTER_PORT", "1234"},
                           {"COLLS_TOKEN", "s3cret"}, {"COLLS_INTERFACE", "10.0.0.2"}}));
    CHECK(l.rank == 2);
    CHECK(l.size == 5);
    CHECK(l.local_rank == 1);
    CHECK(l.host == "fe80::1%eth0");
    CHECK(l.port == 1234);
    CHECK(l.ports == 1);
    CHECK(l.token == "s3cret");
    CHECK(l.interface_name == "10.0.0.2");
    CHECK(l.source == "COLLS_RANK");

    const launch bare = read(own);
    CHECK(bare.host == "127.0.0.1");
    CHECK(bare.local_rank == 0);
    CHECK(bare.ports > 1);
}

TEST_CASE("launch: reads torchrun's variables", "[launch]") {
    const launch l = read(torchrun);
    CHECK(l.rank == 3);
    CHECK(l.size == 4);
    CHECK(l.local_rank == 1);
    CHECK(l.source == "torchrun");
    CHECK(l.host == "node7");
    // The agent has taken the port itself.
    CHECK(l.port == 29501);
    CHECK(l.ports == 16);
    const launch high = read(with(torchrun, {{"MASTER_PORT", "65535"}}));
    CHECK(high.port + high.ports <= 65535);

    for (const environment& e : {with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}),
             without(torchrun, {"TORCHELASTIC_USE_AGENT_STORE"})}) {
        CHECK(read(e).port == 29500);
        CHECK(read(e).ports == 1);
    }
    const launch elsewhere = read(with(torchrun, {{"COLLS_MASTER_ADDR", "node8"}, {"COLLS_MASTER_PORT", "1024"}}));
    CHECK(elsewhere.host == "node8");
    CHECK(elsewhere.port == 1024);

    // A worker that was restarted must not meet those of before.
    CHECK(read(with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).token != l.token);
    CHECK(read(with(torchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"GROUP_RANK", "0"}})).token == l.token);
}

TEST_CASE("launch: refuses a job of PMIx whose size no variable says", "[launch]") {
    const environment prun{{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "prterun-host-71@1"}};
    CHECK(
        lacks(error_of(prun), {"rank 2 of PMIx's job prterun-host-71@1", "colls::pmix::world()", "COLLS_RANK"}) == "");
    CHECK(read(with(prun, {{"COLLS_RANK", "1"}, {"COLLS_SIZE", "3"}})).size == 3);
    CHECK(read({{"PMIX_NAMESPACE", "prterun-host-71@1"}}).size == 1);
}

TEST_CASE("launch: takes RANK and WORLD_SIZE as torchrun's only with MASTER_ADDR", "[launch]") {
    const environment words{{"RANK", "3"}, {"WORLD_SIZE", "4"}};
    CHECK(lacks(error_of(words), {"MASTER_ADDR is not"}) == "");
    CHECK(read(with(words, {{"COLLS_MASTER_ADDR", "::1"}})).size == 4);
    CHECK(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).source == "none");
    CHECK(read({{"RANK", "7"}}).size == 1);
    CHECK(read({{"WORLD_SIZE", "7"}}).size == 1);
    // An empty variable is a mistake of a script.
    CHECK(lacks(error_of({{"RANK", ""}, {"WORLD_SIZE", "4"}}), {"RANK is empty or not set"}) == "");
    CHECK(lacks(error_of({{"RANK", "1"}, {"WORLD_SIZE", ""}}), {"WORLD_SIZE is empty or not set"}) == "");
    CHECK(lacks(error_of({{"RANK", "1"}, {"MASTER_ADDR", "::1"}}), {"WORLD_SIZE is empty or not set"}) == "");
    CHECK(lacks(error_of({{"COLLS_RANK", ""}, {"COLLS_SIZE", "4"}}), {"COLLS_RANK is not"}) == "");
    CHECK(read(with(words, hydra)).source == "PMI");
}

TEST_CASE("launch: reads the variables of PALS, MVAPICH, JSM and Flux", "[launch]") {
    struct words {
        const char *source, *rank, *size, *local, *local_size, *job;
    };
    for (const words& w : {words{"PALS", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PMI_LOCAL_SIZE", "PALS_APID"},
             words{"PALS", "PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS_APID"},
             words{"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
                 "MV2_COMM_WORLD_LOCAL_SIZE", "MPIRUN_ID"},
             words{"JSM", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
                 "JSM_NAMESPACE_LOCAL_SIZE", "JSM_NAMESPACE_ID"},
             words{"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", nullptr, "FLUX_JOB_ID"}}) {
        INFO(w.source);
        environment set{{w.rank, "5"}, {w.size, "6"}, {w.local, "2"}};
        if (w.local_size) set[w.local_size] = "6";
        const launch l = read(set);
        CHECK(l.source == w.source);
        CHECK(l.rank == 5);
        CHECK(l.size == 6);
        CHECK(l.local_rank == 2);
        CHECK(read(with(set, {{w.job, "another"}})).token != l.token);
        CHECK(lacks(error_of(without(set, {w.size})), {w.rank, "is set, but"}) == "");
        set[w.local_size ? w.local_size : "FLUX_JOB_NNODES"] = "3";
        CHECK(lacks(error_of(set), {"COLLS_MASTER_ADDR", w.source}) == "");
        set["COLLS_MASTER_ADDR"] = "node1";
        CHECK(read(set).host == "node1");
    }
}

TEST_CASE("launch: an address of IPv6 may stand in brackets, and one within a link names its interface", "[launch]") {
    for (const char* const variable : {"MASTER_ADDR", "COLLS_MASTER_ADDR"}) {
        CHECK(read(with(own, {{variable, "[::1]"}})).host == "::1");
        CHECK(read(with(own, {{variable, "fe80::1%eth0"}})).host == "fe80::1%eth0");
        CHECK(read(with(own, {{variable, "[fe80::1%eth0]"}})).host == "fe80::1%eth0");
        for (const char* const host : {"fe80::1", "[fe80::1]"})
            CHECK(lacks(error_of(with(own, {{variable, host}})), {"it needs the interface, as fe80::1%eth0"}) == "");
    }
}

TEST_CASE("launch: copies of a program that make groups of one are told that they are no job", "[launch]") {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    const support::shared_block shared(2 * sizeof(std::atomic<int>));
    auto* const came = reinterpret_cast<std::atomic<int>*>(shared.at());
    const pid_t shell = fork();  // the parent of two copies, as an unknown launcher
    REQUIRE(shell >= 0);
    if (shell == 0) {
        dup2(ends[1], 2);
        const auto meet = [](std::atomic<int>& count) {
            for (++count; count < 2;) usleep(1'000);
        };
        for (int copy = 0; copy < 2; ++copy)
            if (fork() == 0) {
                meet(came[0]);  // each looks while the other is there, too
                const int size = read({}).size;
                meet(came[1]);
                _exit(size == 1 ? 0 : 1);
            }
        int status = 0, failed = 0;
        for (int i = 0; i < 2; ++i) failed += wait(&status) < 0 || status != 0;
        _exit(failed);
    }
    close(ends[1]);
    int status = 0;
    CHECK(waitpid(shell, &status, 0) == shell);
    CHECK(status == 0);
    char text[2000] = {};
    CHECK(::read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    CHECK(lacks(text, {"each of 2 processes of", "is a group of one", "COLLS_RANK, COLLS_SIZE"}) == "");
    CHECK(std::string(text).find("group of one") == std::string(text).rfind("group of one"));  // one of them says it
}

TEST_CASE("launch: reads Open MPI's variables", "[launch]") {
    const launch l = read(open_mpi);
    CHECK(l.rank == 1);
    CHECK(l.size == 6);
    CHECK(l.local_rank == 1);
    CHECK(l.source == "Open MPI");
    CHECK(l.host == "127.0.0.1");
    CHECK(l.ports == 16);

    // Whatever names the job does; another job is another group.
    const environment other =
        with(open_mpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"PMIX_RANK", "0"}});
    CHECK(read(other).port == l.port);
    CHECK(read(other).token == l.token);
    environment job = open_mpi;
    for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}) {
        const launch a = read(job);
        const launch b = read(with(job, {{name, "another"}}));
        CHECK(a.token != b.token);
        CHECK(a.port != b.port);
        job.erase(name);
    }
}

TEST_CASE("launch: rejects several hosts if that of rank 0 is not known", "[launch]") {
    const environment apart = with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
    CHECK(lacks(error_of(apart), {"COLLS_MASTER_ADDR", "Open MPI"}) == "");
    CHECK(lacks(error_of(with(hydra, {{"MPI_LOCALNRANKS", "2"}})), {"COLLS_MASTER_ADDR", "PMI"}) == "");
    CHECK(read(with(apart, {{"COLLS_MASTER_ADDR", "node1"}})).host == "node1");
    CHECK(read(with(apart, {{"MASTER_ADDR", "node1"}})).host == "node1");
    // In an allocation mpirun begins with its first host; the step is one of daemons.
    CHECK(read(with(slurm, apart)).host == "rack02");
    // On several hosts the proxies differ: nothing of one of them may be in the token.
    const environment proxied = with(hydra, {{"MPI_LOCALNRANKS", "2"}, {"COLLS_MASTER_ADDR", "node1"}});
    CHECK(read(proxied).token == "PMI/");
}

TEST_CASE("launch: reads PMI's variables", "[launch]") {
    const launch l = read(hydra);
    CHECK(l.rank == 4);
    CHECK(l.size == 7);
    CHECK(l.local_rank == 4);
    CHECK(l.source == "PMI");
    CHECK(l.host == "127.0.0.1");
    CHECK(l.token == "PMI/" + std::to_string(getppid()));  // no proxy above this process
    CHECK(read(with(hydra, {{"PMI_JOBID", "77"}})).token == "PMI/77");
}

TEST_CASE("launch: Hydra's ranks find their proxy through shells", "[launch]") {
    if (std::system("command -v mpiexec.hydra > /dev/null 2>&1") != 0) {
        WARN("left out: no mpiexec.hydra here");
        return;
    }
    char self[4096] = {};
    REQUIRE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const std::string command = "COLLS_LAUNCH_TEST_CHILD=1 timeout 600 mpiexec.hydra -n 3 sh -c '\"" +
                                std::string(self) +
                                "\" \"launch: reads the environment of this process\" -s; true' 2>&1";
    std::FILE* const out = popen(command.c_str(), "r");
    REQUIRE(out != nullptr);
    std::set<std::string> tokens, ranks;
    char line[512];
    while (std::fgets(line, sizeof line, out)) {
        char rank[16], token[200];
        if (std::sscanf(line, "launched as %15s with %199s", rank, token) != 2) continue;
        ranks.insert(rank);
        tokens.insert(token);
    }
    CHECK(pclose(out) == 0);
    CHECK(ranks == std::set<std::string>{"0", "1", "2"});
    CHECK(tokens.size() == 1);
}
TEST_CASE("launch: reads the environment of this process", "[launch]") {
    const launch l = colls::read_launch();
    if (std::getenv("COLLS_LAUNCH_TEST_CHILD")) std::printf("launched as %d with %s\n", l.rank, l.token.c_str());
    CHECK(l.rank < l.size);
}

TEST_CASE("launch: reads Slurm's variables", "[launch]") {
    const launch l = read(slurm);
    CHECK(l.rank == 5);
    CHECK(l.size == 8);
    CHECK(l.local_rank == 1);
    CHECK(l.source == "Slurm");
    CHECK(l.host == "rack03");
    CHECK(l.token == "Slurm/4711/0/");
    CHECK(l.ports == 16);
    CHECK(read(with(slurm, {{"SLURM_STEP_ID", "1"}})).token != l.token);
    CHECK(read(with(slurm, {{"SLURM_JOB_ID", "4712"}})).port != l.port);
    CHECK(read(without(slurm, {"SLURM_STEP_NODELIST"})).host == "rack02");
    CHECK(read(without(slurm, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})).host == "127.0.0.1");
    CHECK(read(without(slurm, {"SLURM_STEP_NUM_TASKS"})).size == 8);
    CHECK(read({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_NODEID", "0"}}).size == 2);
    // A step of fewer tasks than the allocation has.
    CHECK(read(with(slurm, {{"SLURM_STEP_NUM_TASKS", "6"}})).size == 6);
}

TEST_CASE("launch: a task of a heterogeneous job of Slurm is refused", "[launch]") {
    // As in `srun a : b`, where a task hears of the tasks of its own component only, and as in `srun a`.
    for (const char* name : {"SLURM_HET_SIZE", "SLURM_PACK_SIZE"})
        CHECK(lacks(error_of(with(slurm, {{name, "2"}})),
                  {"heterogeneous job", std::string(name) + " is 2", "COLLS_SIZE", "COLLS_MASTER_ADDR"}) == "");
    CHECK(read(with(slurm, {{"SLURM_HET_SIZE", "1"}})).size == 8);
    CHECK(read(with(slurm, {{"SLURM_HET_SIZE", "2"}, {"COLLS_RANK", "9"}, {"COLLS_SIZE", "12"},
                               {"COLLS_MASTER_ADDR", "rack03"}}))
              .size == 12);
}

TEST_CASE("launch: a Slurm allocation or batch script is no launch", "[launch]") {
    CHECK(read({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "4711"}, {"SLURM_JOB_NODELIST", "a[1-2]"}}).size == 1);
    // A batch script runs as a task of its own, which is not a step.
    const environment batch =
        with(without(slurm, {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST"}), {{"SLURM_PROCID", "0"}});
    CHECK(read(batch).size == 1);
    CHECK(read(batch).source == "none");
    CHECK(read(with(batch, {{"SLURM_STEPID", "0"}})).size == 8);  // the older name of the variable
}

TEST_CASE("launch: of nested launchers the innermost counts", "[launch]") {
    const environment all = with(with(with(with(slurm, hydra), open_mpi), torchrun), own);
    CHECK(read(all).source == "COLLS_RANK");
    CHECK(read(without(all, {"COLLS_RANK", "COLLS_SIZE"})).source == "torchrun");
    CHECK(read(with(with(slurm, hydra), open_mpi)).source == "Open MPI");
    CHECK(read(with(slurm, hydra)).source == "PMI");
    CHECK(read(with(slurm, open_mpi)).rank == 1);
    // srun was the last launcher.
    CHECK(read(with(with(open_mpi, slurm), {{"PMIX_NAMESPACE", "slurm.pmix.4711.0"}})).source == "Slurm");
    CHECK(read(with(with(hydra, slurm), {{"PMI_JOBID", "4711.0"}})).source == "Slurm");
    // A variable that is empty counts as unset.
    CHECK(read(with(slurm, {{"COLLS_RANK", ""}, {"COLLS_SIZE", ""}})).source == "Slurm");
}

TEST_CASE("launch: finds the first host of a Slurm list", "[launch]") {
    using colls::detail::first_host;
    CHECK(first_host("node1") == "node1");
    CHECK(first_host("a1,b2") == "a1");
    CHECK(first_host("node[03-07,12]") == "node03");
    CHECK(first_host("node[12,03-07]") == "node12");
    CHECK(first_host("node[5],other") == "node5");
    CHECK(first_host("rack[1-2]n[03,5].example.org,x") == "rack1n03.example.org");
    CHECK(first_host("my-host-2,b") == "my-host-2");
    CHECK(first_host("(null)").empty());
    CHECK(first_host("").empty());
    CHECK(first_host("node[").empty() == false);
    CHECK(first_host("node[3") == "node3");
    CHECK(first_host("[") == "");
}

TEST_CASE("launch: rejects a value that is no number or out of range, and names its variable", "[launch]") {
    struct row {
        environment set;
        const char *name, *value;
    };
    std::vector<row> rows;
    for (const char* bad : {"x", "-1", "1.5", "3 ", " 3", "0x1", "99999999999999999999", "1e3", "+1"}) {
        rows.push_back({with(own, {{"COLLS_RANK", bad}}), "COLLS_RANK", bad});
        rows.push_back({with(own, {{"COLLS_SIZE", bad}}), "COLLS_SIZE", bad});
        rows.push_back({with(own, {{"COLLS_LOCAL_RANK", bad}}), "COLLS_LOCAL_RANK", bad});
        rows.push_back({with(own, {{"COLLS_MASTER_PORT", bad}}), "COLLS_MASTER_PORT", bad});
        rows.push_back({with(torchrun, {{"RANK", bad}}), "RANK", bad});
        rows.push_back({with(torchrun, {{"WORLD_SIZE", bad}}), "WORLD_SIZE", bad});
        rows.push_back({with(torchrun, {{"LOCAL_RANK", bad}}), "LOCAL_RANK", bad});
        rows.push_back({with(torchrun, {{"MASTER_PORT", bad}}), "MASTER_PORT", bad});
        rows.push_back({with(open_mpi, {{"OMPI_COMM_WORLD_RANK", bad}}), "OMPI_COMM_WORLD_RANK", bad});
        rows.push_back({with(open_mpi, {{"OMPI_COMM_WORLD_SIZE", bad}}), "OMPI_COMM_WORLD_SIZE", bad});
        rows.push_back({with(hydra, {{"PMI_RANK", bad}}), "PMI_RANK", bad});
        rows.push_back({with(hydra, {{"PMI_SIZE", bad}}), "PMI_SIZE", bad});
        rows.push_back({with(slurm, {{"SLURM_PROCID", bad}}), "SLURM_PROCID", bad});
        rows.push_back({with(slurm, {{"SLURM_STEP_NUM_TASKS", bad}}), "SLURM_STEP_NUM_TASKS", bad});
        rows.push_back({with(without(slurm, {"SLURM_STEP_NUM_TASKS"}), {{"SLURM_NTASKS", bad}}), "SLURM_NTASKS", bad});
    }
    rows.push_back({with(own, {{"COLLS_SIZE", "0"}}), "COLLS_SIZE", "0"});
    rows.push_back({with(own, {{"COLLS_MASTER_PORT", "0"}}), "COLLS_MASTER_PORT", "0"});
    rows.push_back({with(torchrun, {{"MASTER_PORT", "65536"}}), "MASTER_PORT", "65536"});
    for (const row& r : rows) {
        INFO(r.name << " = '" << r.value << "'");
        CHECK(lacks(error_of(r.set), {"variable " + std::string(r.name) + " is '" + r.value + "'"}) == "");
    }
}

TEST_CASE("launch: rejects a rank outside the world, and a rank without a size", "[launch]") {
    CHECK(lacks(error_of(with(own, {{"COLLS_RANK", "5"}})),
              {"COLLS_RANK is 5, but COLLS_SIZE is 5: ranks are 0 to 4"}) == "");
    CHECK(lacks(error_of(with(torchrun, {{"RANK", "4"}})), {"RANK is 4, but WORLD_SIZE is 4"}) == "");
    CHECK(lacks(error_of(with(open_mpi, {{"OMPI_COMM_WORLD_RANK", "6"}})), {"OMPI_COMM_WORLD_RANK is 6"}) == "");
    CHECK(lacks(error_of(with(hydra, {{"PMI_RANK", "9"}})), {"PMI_RANK is 9"}) == "");
    CHECK(lacks(error_of(with(slurm, {{"SLURM_PROCID", "8"}})), {"SLURM_PROCID is 8"}) == "");

    CHECK(lacks(error_of({{"COLLS_RANK", "0"}}), {"COLLS_RANK is set, but COLLS_SIZE is not"}) == "");
    CHECK(lacks(error_of({{"COLLS_SIZE", "2"}}), {"COLLS_SIZE is set, but COLLS_RANK is not"}) == "");
    CHECK(lacks(error_of(without(open_mpi, {"OMPI_COMM_WORLD_SIZE"})), {"OMPI_COMM_WORLD_SIZE is not"}) == "");
    CHECK(lacks(error_of(without(hydra, {"PMI_SIZE"})), {"PMI_SIZE is not"}) == "");
    CHECK(lacks(error_of({{"SLURM_PROCID", "0"}}), {"SLURM_NTASKS is not"}) == "");
}

TEST_CASE("launch: derived ports are from 20000 to 29999, and differ between jobs", "[launch]") {
    std::set<int> ports;
    for (int job = 0; job < 300; ++job) {
        const launch l = read(with(slurm, {{"SLURM_JOB_ID", std::to_string(job)}}));
        REQUIRE(l.port >= 20000);
        REQUIRE(l.port + l.ports - 1 <= 29999);
        ports.insert(l.port);
    }
    CHECK(ports.size() > 270);  // 300 of 10000: about 4 coincide
    // The token tells jobs apart if nothing else does.
    CHECK(read(with(own, {{"COLLS_TOKEN", "a"}})).port != read(with(own, {{"COLLS_TOKEN", "b"}})).port);
}

TEST_CASE("launch: COLLS_DEBUG=info, or 1, prints what was found", "[launch]") {
    const auto said = [](const environment& set) {
        const int file = memfd_create("said", MFD_CLOEXEC);
        REQUIRE(file >= 0);
        const int before = dup(2);
        dup2(file, 2);
        try {
            read(set);
        } catch (...) {}
        std::fflush(stderr);
        dup2(before, 2);
        close(before);
        char text[2000] = {};
        const ssize_t n = pread(file, text, sizeof text - 1, 0);
        close(file);
        return std::string(text, n > 0 ? static_cast<std::size_t>(n) : 0);
    };
    for (const char* level : {"info", "1", "trace"}) {
        const std::string text = said(with(torchrun, {{"COLLS_DEBUG", level}}));
        CHECK(lacks(text, {"rank 3 of 4", "RANK and WORLD_SIZE", "node7, port 29501 to 29516"}) == "");
        const std::string alone = said({{"COLLS_DEBUG", level}});
        CHECK(lacks(alone, {"rank 0 of 1", "no known launcher has set the environment"}) == "");
        CHECK(alone.find("listens") == std::string::npos);
    }
    CHECK(said(torchrun).empty());
    CHECK(said(with(torchrun, {{"COLLS_DEBUG", "warn"}})).empty());
}
