// The picture of a run: time and bus bandwidth over size, with the machine's bound, and with peers.
#pragma once

#include "report.hpp"

#include <string>
#include <vector>

namespace perf {

/// Figures from a file: of another library, or of another run.
struct peer_row {
    std::string collective, type, op;  ///< empty: not said
    int ranks = 0;                     ///< 0: not said
    double bytes = 0, seconds = 0;
};
struct peer {
    std::string name;
    std::vector<peer_row> rows;
};

/// Reads what --json writes, or any JSON list of rows, or object with one as `rows`, in which a row has `bytes` and
/// `seconds`, and may say `collective`, `type`, `redop` and `ranks`. In the files of scripts/bench the time is the
/// peer's, `peer_us`. Throws std::runtime_error that names the file.
peer read_peer(const std::string& name, const std::string& file);

/// Two charts, one above the other, as an SVG document. Of a peer only those rows are drawn that were measured with the
/// collective, type, operator and number of ranks of some row, or do not say these.
std::string draw(const options& o, const std::vector<row>& rows, const std::vector<peer>& peers);

}  // namespace perf
