// Ranks on GPUs, and the collective calls for them. For units that nvcc compiles; CMake: link colls::cuda.
//
//     colls::cuda::virtual_ranks ranks(4);                                  ranks as blocks of one GPU, or
//     auto gpus = colls::cuda::communicator::of_devices({0, 1, 2, 3});      the GPUs of this process, or
//     colls::cuda::communicator gpu(host_group, device);                    one process a GPU
//     colls::cuda::all_reduce<colls::ring>(gpu, gradients, colls::sum, stream);
//
// The calls have the names of the host's, and a stream as an argument: see cuda/collectives.hpp. Calls within a user's
// own kernel: cuda/device.hpp. (With `using namespace colls` the name cuda would also mean CUDA's own namespace: write
// colls::cuda.)
#pragma once

#include <colls/cuda/collectives.hpp>
#include <colls/cuda/communicator.hpp>
#include <colls/cuda/epilogue.hpp>
#include <colls/cuda/group_of_calls.hpp>
#include <colls/cuda/options.hpp>
#include <colls/cuda/virtual_ranks.hpp>
