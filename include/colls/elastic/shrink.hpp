// A shrink of which a store decides which ranks go on, also where no majority is left.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/communicator.hpp>
#include <colls/elastic/store.hpp>

#include <string_view>

namespace colls::inline v1::elastic {

/// As communicator::shrink, but where ranks pass messages the store decides, and not a majority of the group: of the
/// parts of a cut network that reach the store one goes on, the first that writes its list there, however small; the
/// ranks of the others get peer_failed. Collective among the remaining ranks, all of which call this one, with the same
/// store and name. The key is the name and the group's number ("NAME/123"), and stays.
/// Where ranks share memory no network can cut them off, and this is communicator::shrink. Throws colls::error:
/// unsupported where the transport gives its groups no number; and what the store throws.
communicator shrink(communicator& comm, store& door, std::string_view name);

}  // namespace colls::inline v1::elastic
