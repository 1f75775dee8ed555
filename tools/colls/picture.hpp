// Pictures of a schedule: all rounds side by side.
#pragma once

#include "catalogue.hpp"

#include <string>
#include <vector>

namespace tool {

/// Ranks and slots that a picture has at most; more are refused, since nothing could be read.
inline constexpr int most_ranks = 32, most_slots = 64;

/// An SVG document: a row for each rank, a column for each moment between rounds, arrows for the transfers of a round.
/// A square is a slot: its colour is the block that it holds, the filled part of it the share of the contributions that
/// it combines, its frame is dark where it holds what the collective asks for. `hosts`: of each rank, or empty; then
/// ranks of a host have a ground of one shade, and transfers between hosts are dashed. Throws std::runtime_error where
/// the schedule does not support n ranks, is not right, or is too large to be drawn.
std::string svg_of(const entry& of, int n, const std::vector<int>& hosts = {});

/// `text` as HTML and SVG write it.
std::string escaped(const std::string& text);

}  // namespace tool
