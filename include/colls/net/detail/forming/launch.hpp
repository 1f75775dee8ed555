// Reads from the environment of a process which rank of which job it is.
// IWYU pragma: private, include <colls/bootstrap/launch.hpp>
#pragma once

#include <colls/bootstrap/launch.hpp>
#include <colls/detail/group/backoff.hpp>
#include <colls/detail/support/hash.hpp>
#include <colls/detail/support/host.hpp>
#include <colls/net/detail/connection/socket.hpp>

#include <sys/types.h>
#include <unistd.h>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace colls::inline v1 {
namespace detail {

inline const char* first_set(std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (const char* const value = variable(name)) return value;
    return nullptr;
}

/// The number in a variable's value. Throws invalid_argument if it is no number from `least` to `most`.
[[gnu::cold]] inline int number(const char* name, const char* value, int least, int most) {
    int n = 0;
    const char* const end = value + std::strlen(value);
    const auto [stopped, code] = std::from_chars(value, end, n);
    if (code == std::errc() && stopped == end && n >= least && n <= most) return n;
    error_text text;
    text << "colls: the environment variable " << name << " is '" << std::string_view(value).substr(0, 60)
         << "', but must be a whole number of at least " << least;
    throw error(errc::invalid_argument, most < 1 << 30 ? text << " and at most " << most : text);
}

/// The first host of a Slurm list: "node03" of "node[03-07,12],login". Empty if the list is.
[[gnu::cold]] inline std::string first_host(std::string_view list) {
    std::string host;
    for (std::size_t i = 0; i < list.size() && list[i] != ',';) {
        if (list[i] != '[') {
            host += list[i++];
            continue;
        }
        const std::size_t end = list.find_first_of(",-]", ++i);
        host += list.substr(i, end == list.npos ? end : end - i);
        const std::size_t closing = list.find(']', i);
        i = closing == list.npos ? list.size() : closing + 1;
    }
    return host == "(null)" ? std::string() : host;
}

/// The process id of Hydra's proxy on this host, from which all ranks of the host descend, perhaps through shells. It
/// stands for the job, which no variable of Hydra's names.
[[gnu::cold]] inline long hydra_proxy() {
    long process = getppid();
    for (int generation = 0; generation < 16 && process > 1; ++generation) {
        const std::string stat = text_of_file("/proc/" + std::to_string(process) + "/stat");
        const std::size_t name = stat.find('('), after = stat.rfind(')');  // a program's name may contain parentheses
        if (name == stat.npos || after == stat.npos) break;
        if (stat.compare(name, 7, "(hydra_") == 0) return process;
        if (std::sscanf(stat.c_str() + after, ") %*c %ld", &process) != 1) break;
    }
    return getppid();
}

/// The variables of a launcher. `local` (the rank among those of this host) and `local_size` may be null.
struct launcher {
    const char *source, *rank, *size, *local, *local_size = nullptr;
};

/// The launcher that started this process; all members null if there is none. Launchers run inside others, whose
/// variables are inherited. The order of these checks tells which one is the innermost:
/// - COLLS_RANK and COLLS_SIZE, which the user sets for this library, count before all others.
/// - torchrun is started by srun or mpirun once for each host, and starts the ranks itself, never the reverse. Other
///   programs use the names RANK and WORLD_SIZE too, so MASTER_ADDR must be set as well, as torch itself requires.
/// - In a Slurm allocation mpirun starts its daemons by srun: SLURM_PROCID then counts daemons, or is that of the batch
///   script. So MPI comes before Slurm, unless the names that srun's PMIx and PMI-2 plugins leave show that srun was
///   the last launcher.
/// - SLURM_NTASKS alone shows an allocation, not a launch. In a batch script or an interactive shell SLURM_PROCID is
///   set too: Slurm runs these as a task of their own (SLURM_TASK_PID) with number 0, but not as a step
///   (SLURM_STEP_ID), and srun starts steps.
[[gnu::cold]] inline launcher find_launcher() {
    const auto set = [](const char* name) { return variable(name) != nullptr; };
    const bool ranked = set("RANK") && set("WORLD_SIZE"), met = set("MASTER_ADDR") || set("COLLS_MASTER_ADDR");
    const bool task = set("SLURM_PROCID");
    const bool step = set("SLURM_STEP_ID") || set("SLURM_STEPID") || !set("SLURM_TASK_PID");
    const char* const space = variable("PMIX_NAMESPACE");
    const bool srun_pmix = task && space && std::string_view(space).starts_with("slurm.");
    const bool srun_pmi2 = task && set("PMI_JOBID");
    const struct {
        bool found;
        launcher by;
    } all[] = {
        {set("COLLS_RANK") || set("COLLS_SIZE"), {"COLLS_RANK", "COLLS_RANK", "COLLS_SIZE", "COLLS_LOCAL_RANK"}},
        {ranked && met, {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}},
        {set("OMPI_COMM_WORLD_RANK") && !srun_pmix, {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                                        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}},
        {set("PALS_RANKID"), {"PALS", "PALS_RANKID", set("PMI_SIZE") ? "PMI_SIZE" : "PALS_SIZE", "PALS_LOCAL_RANKID",
                                 set("PMI_LOCAL_SIZE") ? "PMI_LOCAL_SIZE" : "PALS_LOCAL_SIZE"}},
        {set("MV2_COMM_WORLD_RANK"), {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
                                         "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"}},
        {set("JSM_NAMESPACE_RANK"), {"JSM", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
                                        "JSM_NAMESPACE_LOCAL_SIZE"}},
        {set("FLUX_TASK_RANK"), {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"}},
        {set("PMI_RANK") && !srun_pmix && !srun_pmi2,
            {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}},
        {task && step, {"Slurm", "SLURM_PROCID", set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
                           "SLURM_LOCALID"}},
    };
    for (const auto& one : all)
        if (one.found) return one.by;
    // An error is better than as many groups of one rank.
    if (ranked && number("WORLD_SIZE", variable("WORLD_SIZE"), 1, 1 << 30) > 1)
        throw error(errc::invalid_argument,
            "colls: RANK and WORLD_SIZE are set, but MASTER_ADDR is not: set it (or "
            "COLLS_MASTER_ADDR) to the host of rank 0, or unset both");
    // An empty variable is a mistake of a script.
    const bool one_is_empty = set("RANK") ? std::getenv("WORLD_SIZE") != nullptr : std::getenv("RANK") != nullptr;
    if (set("RANK") != set("WORLD_SIZE") && (met || one_is_empty))
        throw error(errc::invalid_argument,
            error_text() << "colls: " << (set("RANK") ? "WORLD_SIZE" : "RANK")
                         << " is empty or not set, but other variables of torchrun are: set RANK, WORLD_SIZE and "
                            "MASTER_ADDR, or none of them");
    if (set("PMIX_RANK") && space)
        throw error(errc::invalid_argument,
            error_text() << "colls: this is rank " << variable("PMIX_RANK") << " of PMIx's job " << space
                         << ", whose size no variable says: call colls::pmix::world() (colls/pmix.hpp), or set "
                            "COLLS_RANK, COLLS_SIZE, COLLS_MASTER_ADDR and COLLS_MASTER_PORT");
    return {};
}

/// A step over several components of a heterogeneous job is one world, in which SLURM_PROCID counts, but the tasks and
/// hosts are told of the own component alone. The variables of a step in one component are the same.
[[gnu::cold]] inline void refuse_components() {
    for (const char* name : {"SLURM_HET_SIZE", "SLURM_PACK_SIZE"})
        if (const char* const components = variable(name); components && number(name, components, 0, 1 << 30) > 1)
            throw error(errc::invalid_argument,
                error_text() << "colls: this is a task of a heterogeneous job of Slurm (" << name << " is "
                             << components
                             << "), which does not say how many tasks its step has over all components: set COLLS_RANK "
                                "to $SLURM_PROCID, COLLS_SIZE to that number, COLLS_MASTER_ADDR to the host of rank 0, "
                                "and COLLS_MASTER_PORT, in a script that srun starts");
}

/// A program that was started several times without a launcher's variables makes as many groups of one, where its user
/// may have meant one of all: the first of the copies says so.
[[gnu::cold]] inline void warn_of_copies() {
    const auto program_of = [](long process) {
        char name[512];
        const ssize_t length = readlink(("/proc/" + std::to_string(process) + "/exe").c_str(), name, sizeof name);
        return std::string(name, length > 0 ? static_cast<std::size_t>(length) : 0);
    };
    const std::string parent = std::to_string(getppid()), own = program_of(getpid());
    std::string children = text_of_file("/proc/" + parent + "/task/" + parent + "/children");
    long first = 0;
    int copies = 0;
    char* at = children.data();
    for (long child = std::strtol(at, &at, 10); child != 0; child = std::strtol(at, &at, 10))
        if (program_of(child) == own && copies++ == 0) first = child;
    if (copies > 1 && first == getpid() && !own.empty())
        say(error_text()
            << "colls: each of " << copies << " processes of " << own
            << " is a group of one: they were started by process " << parent
            << ", which is not a known launcher (COLLS_RANK, torchrun, Open MPI, PMI, PALS, "
               "MVAPICH, JSM, Flux, Slurm's srun). For one group set COLLS_RANK, COLLS_SIZE, COLLS_MASTER_ADDR and "
               "COLLS_MASTER_PORT; if that is what is meant, set COLLS_RANK=0 and COLLS_SIZE=1");
}

/// A text that is the same for all ranks of this job, and differs from other jobs' as far as the launcher's variables
/// do.
[[gnu::cold]] inline std::string job_identity(std::string_view source, bool several_hosts) {
    std::string identity(source);
    const auto add = [&](const char* value) { identity.append("/").append(value ? value : ""); };
    if (source == "torchrun") {
        // A restarted worker must not meet workers that are left of the previous run.
        for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"})
            add(variable(name));
    } else if (source == "Slurm") {
        for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}) add(variable(name));
    } else if (source == "Open MPI") {
        add(first_set({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}));
    } else if (source != "COLLS_RANK") {
        const bool pmi = source == "PMI";
        const char* const job =
            pmi ? first_set({"PMI_JOBID", "SLURM_JOB_ID"})
                : first_set({"PALS_APID", "MPIRUN_ID", "JSM_NAMESPACE_ID", "FLUX_JOB_ID", "LSB_JOBID", "PBS_JOBID"});
        add(job || several_hosts ? job : std::to_string(pmi ? hydra_proxy() : static_cast<long>(getppid())).c_str());
    }
    return identity;
}

/// Slurm's first host. If srun has started this process, it is the step's. Otherwise it is the allocation's, on which
/// mpirun puts rank 0 by default: the step would be that of mpirun's daemons, or of the batch script.
[[gnu::cold]] inline std::string slurm_host(std::string_view source) {
    const char* const step = source == "Slurm" ? variable("SLURM_STEP_NODELIST") : nullptr;
    const char* const list = step ? step : first_set({"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
    return list ? first_host(list) : "";
}

/// A port that all ranks of the job derive alike, from 20000 to 29999: below the ports that systems assign themselves.
inline int port_of_job(std::string_view identity, std::string_view token, int ports) {
    std::uint64_t hash = hash_mix(static_cast<std::uint64_t>(getuid()), 0x706f7274);
    for (const std::string_view text : {identity, token})
        for (const char c : text) hash = hash_mix(static_cast<unsigned char>(c), hash);
    return 20000 + static_cast<int>(hash % static_cast<std::uint64_t>(10000 - ports + 1));
}

/// "2000", "2000 to 2015".
[[gnu::cold]] inline std::string ports_text(const launch& l) {
    return std::to_string(l.port) + (l.ports > 1 ? " to " + std::to_string(l.port + l.ports - 1) : "");
}

/// How many ports are tried if none was given.
inline constexpr int derived_ports = 16;

/// A host as a user writes it: an address of IPv6 may stand in brackets. Throws invalid_argument.
[[gnu::cold]] inline std::string host_given(std::string_view host) {
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    if ((host.starts_with("fe80:") || host.starts_with("FE80:")) && host.find('%') == host.npos)
        throw error(errc::invalid_argument, error_text()
                                                << "colls: MASTER_ADDR or COLLS_MASTER_ADDR is '" << host.substr(0, 60)
                                                << "', an address within a link: it needs the interface, as "
                                                << host.substr(0, 60) << "%eth0");
    return std::string(host);
}

/// Reads where rank 0 listens, and the token.
[[gnu::cold]] inline void read_meeting_point(launch& l, bool several_hosts) {
    if (const char* const given = first_set({"COLLS_MASTER_ADDR", "MASTER_ADDR"}))
        l.host = host_given(given);
    else if (const std::string listed = several_hosts || l.source == "Slurm" ? slurm_host(l.source) : std::string();
        !listed.empty())
        l.host = listed;
    else if (several_hosts)
        throw error(errc::invalid_argument,
            error_text() << "colls: " << l.source
                         << " has started ranks on several hosts, and does not say on which one rank 0 is: set "
                            "COLLS_MASTER_ADDR to the host of rank 0, for all ranks");
    else if (local_address(listen_on_loopback().get()).family() == AF_INET6)
        l.host = "::1";

    const std::string identity = job_identity(l.source, several_hosts);
    const char* const token = variable("COLLS_TOKEN");
    l.token = token ? token : identity;

    if (const char* const own = variable("COLLS_MASTER_PORT")) {
        l.port = number("COLLS_MASTER_PORT", own, 1, 65535);
    } else if (const char* const theirs = variable("MASTER_PORT")) {
        l.port = number("MASTER_PORT", theirs, 1, 65535);
        // torchrun's agent listens at that port itself, for torch's own store. The ports after it need not be free.
        const char* const agent = variable("TORCHELASTIC_USE_AGENT_STORE");
        if (l.source == "torchrun" && agent && std::string_view(agent) == "True") {
            l.ports = derived_ports;
            l.port = l.port < 65535 - l.ports ? l.port + 1 : l.port - l.ports;
        }
    } else {
        l.ports = derived_ports;
        l.port = port_of_job(identity, l.token, l.ports);
    }
}

}  // namespace detail

[[gnu::cold]] COLLS_INLINE launch read_launch() {
    using namespace detail;
    launch l;
    const launcher by = find_launcher();
    if (const char* const given = variable("COLLS_INTERFACE")) l.interface_name = given;
    if (by.source) {
        l.source = by.source;
        if (l.source == "Slurm") refuse_components();
        const char *const rank = variable(by.rank), *const size = variable(by.size);
        if (!rank || !size)
            throw error(errc::invalid_argument, error_text() << "colls: the environment variable "
                                                             << (rank ? by.rank : by.size) << " is set, but "
                                                             << (rank ? by.size : by.rank) << " is not: set both");
        l.size = number(by.size, size, 1, 1 << 20);
        l.rank = number(by.rank, rank, 0, 1 << 30);
        if (l.rank >= l.size)
            throw error(errc::invalid_argument, error_text() << "colls: the environment variable " << by.rank << " is "
                                                             << l.rank << ", but " << by.size << " is " << l.size
                                                             << ": ranks are 0 to " << l.size - 1);
        if (const char* const local = variable(by.local)) l.local_rank = number(by.local, local, 0, 1 << 30);
        const char* const here = by.local_size ? variable(by.local_size) : nullptr;
        const char* const nodes = l.source == "Flux" ? variable("FLUX_JOB_NNODES") : nullptr;
        const bool several_hosts = (here && number(by.local_size, here, 1, 1 << 30) < l.size) ||
                                   (nodes && number("FLUX_JOB_NNODES", nodes, 1, 1 << 30) > 1);
        if (l.size > 1) read_meeting_point(l, several_hosts);
    } else {
        warn_of_copies();
    }
    if (environment::read().debug >= debug_level::info) {
        error_text text;
        text << "colls: rank " << l.rank << " of " << l.size;
        if (by.source)
            text << ", as " << by.rank << " and " << by.size << " say (" << l.source << ")";
        else
            text << ": no known launcher has set the environment";
        if (l.size > 1) text << "; rank 0 listens at " << l.host << ", port " << ports_text(l);
        say(text);
    }
    return l;
}

}  // namespace colls::inline v1
