// TLS 1.3 for the connections of groups, where COLLS_TLS asks for it.
#pragma once

#include <colls/tls/detail/cover.hpp>

/// A program that includes this header, and links colls::tls (OpenSSL 3), encrypts where the environment says so:
///
///     COLLS_TLS=CERTIFICATE,KEY,CA      three files in PEM
///
/// All connections by which groups are formed, and all TCP connections between their ranks, then are TLS 1.3, by which
/// each side shows the certificate (which the next ones of its chain may follow) and proves that it has its key. Each
/// takes the other one if the CA file leads to its certificate; names of hosts are not compared. All processes of a job
/// have COLLS_TLS, or none. Data that ranks of a host exchange through memory, and those that pass by RDMA or an MPI,
/// are not encrypted. Throws invalid_argument where a file is missing, or does not fit the others, when a group forms.
/// Cost: all bytes are encrypted by the rank that sends them, and decrypted by the one that receives them, in records
/// of 16 KB; a connection begins one round trip later.
namespace colls::inline v1::tls {}
