// Purpose: where gru_kernels' arrays lie in what the caller gives. For gru_kernels alone; in an unnamed
// namespace, since each file that is compiled for another instruction set must have its own copy.
// Ownership: the caller's memory.
// Thread rule: pure functions.
#pragma once

#include "meta/gru_kernels.h"

namespace flash::gru {
namespace {

constexpr std::size_t kPad = 16;       // floats; full vectors of every instruction set
constexpr std::size_t kBlock = 128;    // rows of a right factor's block: a panel of it fits the first cache
constexpr std::size_t kRowBlock = 64;  // rows of a left factor that are taken through a whole block

constexpr std::size_t padded(std::size_t n) {
  return (n + kPad - 1) / kPad * kPad;
}

struct Tape {
  float* gates;  // [rows][3][hidden padded]: z, r, n
  float* inner;  // [rows][hidden padded]: h' Un + cn
  float* h;      // [rows][hidden padded]

  Tape(const Direction& d, float* at)
      : gates(at), inner(at + d.rows() * 3 * padded(d.hidden)), h(inner + d.rows() * padded(d.hidden)) {}
  static std::size_t size(const Direction& d) { return d.rows() * 5 * padded(d.hidden); }
};

struct Scratch {
  float* bias;                 // [4][hidden], padded as all that follows
  float* step;                 // [sequences][3][hidden]: what comes of the state before, and its gradient
  float* state;                // [sequences][hidden]: the first one, 0; dL/dh on the way back
  float* dx;                   // [kRowBlock][inputs]
  float *dinput, *drecurrent;  // gradients of weights
  float *input, *recurrent;    // packed weights
  float *left, *right;         // packed blocks

  Scratch(const Direction& d, float* at) {
    std::size_t sizes[kParts];
    parts(d, sizes);
    float** const all[kParts] = {&bias,       &step,  &state,     &dx,   &dinput,
                                 &drecurrent, &input, &recurrent, &left, &right};
    for (std::size_t i = 0; i < kParts; at += sizes[i], ++i) *all[i] = at;
  }
  static std::size_t size(const Direction& d) {
    std::size_t sizes[kParts], sum = 0;
    parts(d, sizes);
    for (const std::size_t n : sizes) sum += n;
    return sum;
  }

 private:
  static constexpr std::size_t kParts = 10;
  static void parts(const Direction& d, std::size_t (&n)[kParts]) {
    const std::size_t hidden = padded(d.hidden), inputs = padded(d.inputs),
                      most = inputs > hidden ? inputs : hidden;
    n[0] = 4 * hidden;
    n[1] = d.sequences * 3 * hidden;
    n[2] = d.sequences * hidden;
    n[3] = kRowBlock * inputs;
    n[4] = n[6] = inputs * 3 * hidden;
    n[5] = n[7] = hidden * 3 * hidden;
    n[8] = most * kBlock;  // kPad is a multiple of the rows of every tile
    n[9] = kBlock * 3 * hidden;
  }
};

}  // namespace
}  // namespace flash::gru
