// The kernels, written once. Each gru_kernels_*.cc sets FLASH_KERNELS (the namespace), FLASH_LANES (floats
// per vector), FLASH_ROWS (rows of a tile) and, where the gradients of weights are made from factors in
// bfloat16, FLASH_BFLOAT16, and is compiled for its instruction set. No header with inline
// functions may come in here: the linker could take their AVX-512 copy for the whole program.
//
// What costs is products of matrices. Weights are the right factor; they are packed once per call, since a
// sequence of 100 steps reads them 100 times. Numbers of units are padded to kPad with zeros: z is 1/2 and n
// is 0 there, so h stays 0.
#include "meta/gru_kernels.h"
#include "meta/gru_layout.h"

namespace flash::gru::FLASH_KERNELS {
namespace {

using std::size_t;
constexpr size_t kLanes = FLASH_LANES;
constexpr size_t kRows = FLASH_ROWS;  // kRows * kColumns accumulators fit the registers
constexpr size_t kColumns = 3;
constexpr size_t kPanel = kColumns * kLanes;

#include "agents/vectors.inl"

/// A matrix whose element (row, k) is data[row * row_step + k * k_step]; its next kRows rows are `next`
/// further on.
struct Left {
  const float* data;
  size_t row_step, k_step, next;
};

/// What a lane of a packed factor holds: one k's number.
struct Floats {
  static constexpr size_t kDepth = 1;
  static constexpr float kRounding = 0;
  static Vector add(Vector sum, Vector a, Vector b) { return sum + a * b; }
  static void pack_left(size_t rows, const float* a, size_t a_step, size_t k_end, float* to);
  static void pack_right(const float* b, size_t b_step, size_t k_end, size_t n_end, float* to);
};

#ifdef FLASH_BFLOAT16
#include "meta/gru_bfloat16.inl"
using WeightGradients = Pairs;
#else
using WeightGradients = Floats;
#endif

/// Rows of the left factor by a panel of the right one.
template <class Lane, size_t Rows, size_t Columns>
inline void tile(const float* a, size_t row_step, size_t k_step, size_t k_end, const float* b, float* c,
                 size_t c_step, bool add) {
  Vector sum[Rows][Columns];
  for (size_t i = 0; i < Rows; ++i)
    for (size_t j = 0; j < Columns; ++j) sum[i][j] = add ? load(c + i * c_step + j * kLanes) : Vector{};
  for (size_t k = 0; k < k_end; ++k, a += k_step, b += Columns * kLanes) {
    Vector bk[Columns];
    for (size_t j = 0; j < Columns; ++j) bk[j] = load(b + j * kLanes);
    for (size_t i = 0; i < Rows; ++i) {
      const Vector aik = all(a[i * row_step]);
      for (size_t j = 0; j < Columns; ++j) sum[i][j] = Lane::add(sum[i][j], aik, bk[j]);
    }
  }
  for (size_t i = 0; i < Rows; ++i)
    for (size_t j = 0; j < Columns; ++j) store(c + i * c_step + j * kLanes, sum[i][j]);
}

/// One row has too few sums to hide the latency of an addition, so four of each.
template <class Lane, size_t Columns>
inline void single(const float* a, size_t k_step, size_t k_end, const float* b, float* c, bool add) {
  constexpr size_t kStrands = 4;
  Vector sum[kStrands][Columns];
  for (size_t j = 0; j < Columns; ++j) {
    sum[0][j] = add ? load(c + j * kLanes) : Vector{};
    for (size_t s = 1; s < kStrands; ++s) sum[s][j] = Vector{};
  }
  size_t k = 0;
  for (; k + kStrands <= k_end; k += kStrands)
    for (size_t s = 0; s < kStrands; ++s, b += Columns * kLanes, a += k_step) {
      const Vector ak = all(*a);
      for (size_t j = 0; j < Columns; ++j) sum[s][j] = Lane::add(sum[s][j], ak, load(b + j * kLanes));
    }
  for (; k < k_end; ++k, b += Columns * kLanes, a += k_step) {
    const Vector ak = all(*a);
    for (size_t j = 0; j < Columns; ++j) sum[0][j] = Lane::add(sum[0][j], ak, load(b + j * kLanes));
  }
  for (size_t j = 0; j < Columns; ++j)
    store(c + j * kLanes, (sum[0][j] + sum[1][j]) + (sum[2][j] + sum[3][j]));
}

template <class Lane, size_t Columns>
inline void column_of_tiles(size_t rows, const Left& a, size_t k_end, const float* b, float* c, size_t c_step,
                            bool add) {
  const float* group = a.data;
  for (; rows >= kRows; rows -= kRows, group += a.next, c += kRows * c_step)
    tile<Lane, kRows, Columns>(group, a.row_step, a.k_step, k_end, b, c, c_step, add);
  if (kRows > 4 && rows >= 4) {
    tile<Lane, 4, Columns>(group, a.row_step, a.k_step, k_end, b, c, c_step, add);
    rows -= 4, group += 4 * a.row_step, c += 4 * c_step;
  }
  if (rows >= 2) {
    tile<Lane, 2, Columns>(group, a.row_step, a.k_step, k_end, b, c, c_step, add);
    rows -= 2, group += 2 * a.row_step, c += 2 * c_step;
  }
  if (rows > 0) single<Lane, Columns>(group, a.k_step, k_end, b, c, add);
}

/// For multiply(): B (k, n) is b[k * k_step + n * n_step], 0 from n_end to its next multiple of kPad. Blocks
/// of kBlock rows, in each panels of kPanel columns, in each row after row.
void pack(const float* b, size_t k_step, size_t n_step, size_t k_end, size_t n_end, float* to) {
  const size_t all_columns = padded(n_end);
  for (size_t k0 = 0; k0 < k_end; k0 += kBlock) {
    const size_t k1 = k0 + kBlock < k_end ? k0 + kBlock : k_end;
    for (size_t n0 = 0; n0 < all_columns; n0 += kPanel) {
      const size_t n1 = n0 + kPanel < all_columns ? n0 + kPanel : all_columns,
                   known = n1 < n_end ? n1 : n_end;
      for (size_t k = k0; k < k1; ++k) {
        const float* row = b + k * k_step;
        size_t n = n0;
        for (; n < known; ++n) *to++ = row[n * n_step];
        for (; n < n1; ++n) *to++ = 0;
      }
    }
  }
}

/// C [rows][n] = A [rows][k] B [k][n], or added to what is in C; k counts lanes, whatever they hold. B is
/// packed. `from_end`: panels are taken from the last to the first: a B that is larger than the second cache
/// and used again and again is half there if each pass begins where the one before ended.
template <class Lane = Floats>
void multiply(size_t rows, const Left& a, size_t k_end, const float* b, size_t n_end, float* c, size_t c_step,
              bool add, bool from_end = false) {
  const size_t blocks = (k_end + kBlock - 1) / kBlock, panels = (n_end + kPanel - 1) / kPanel;
  for (size_t r0 = 0; r0 < rows; r0 += kRowBlock) {
    const size_t r = r0 + kRowBlock < rows ? kRowBlock : rows - r0;
    for (size_t i = 0; i < blocks; ++i) {
      const size_t k0 = (from_end ? blocks - 1 - i : i) * kBlock;
      const size_t k = k0 + kBlock < k_end ? kBlock : k_end - k0;
      const Left block{a.data + r0 / kRows * a.next + k0 * a.k_step, a.row_step, a.k_step, a.next};
      for (size_t j = 0; j < panels; ++j) {
        const size_t n0 = (from_end ? panels - 1 - j : j) * kPanel;
        const size_t vectors = (n0 + kPanel < n_end ? kPanel : n_end - n0) / kLanes;
        const float* panel = b + k0 * n_end + k * n0;
        float* to = c + r0 * c_step + n0;
        if (vectors == 3)
          column_of_tiles<Lane, 3>(r, block, k, panel, to, c_step, add || i > 0);
        else if (vectors == 2)
          column_of_tiles<Lane, 2>(r, block, k, panel, to, c_step, add || i > 0);
        else
          column_of_tiles<Lane, 1>(r, block, k, panel, to, c_step, add || i > 0);
      }
    }
  }
}

inline Left rows_of(const float* data, size_t step) {
  return {data, step, 1, kRows * step};
}

void Floats::pack_left(size_t rows, const float* a, size_t a_step, size_t k_end, float* to) {
  for (size_t r0 = 0; r0 < rows; r0 += kRows)
    for (size_t k = 0; k < k_end; ++k)
      for (size_t r = r0; r < r0 + kRows; ++r) *to++ = r < rows ? a[k * a_step + r] : 0;
}

void Floats::pack_right(const float* b, size_t b_step, size_t k_end, size_t n_end, float* to) {
  pack(b, b_step, 1, k_end, n_end, to);
}

/// C [rows][n] += A^T B, A [k][rows] with rows a_step apart, B [k][n] with rows b_step apart, n full vectors:
/// the gradient of weights. A block of k at a time.
void add_transposed(size_t rows, const float* a, size_t a_step, size_t k_end, const float* b, size_t b_step,
                    size_t n_end, float* c, size_t c_step, const Scratch& s) {
  for (size_t k0 = 0; k0 < k_end; k0 += kBlock) {
    const size_t k = k0 + kBlock < k_end ? kBlock : k_end - k0;
    WeightGradients::pack_left(rows, a + k0 * a_step, a_step, k, s.left);
    WeightGradients::pack_right(b + k0 * b_step, b_step, k, n_end, s.right);
    const size_t depth = (k + WeightGradients::kDepth - 1) / WeightGradients::kDepth;
    multiply<WeightGradients>(rows, {s.left, 1, kRows, kRows * depth}, depth, s.right, n_end, c, c_step, true);
  }
}

/// [rows][gates * units padded] of from [rows][gates][units]: in `to`, unless there is nothing to pad.
const float* widened(const float* from, size_t rows, size_t gates, size_t units, float* to) {
  const size_t wide = padded(units);
  if (wide == units) return from;
  float* row = to;
  for (size_t i = 0; i < rows * gates; ++i, from += units, row += wide) {
    for (size_t u = 0; u < units; ++u) row[u] = from[u];
    for (size_t u = units; u < wide; ++u) row[u] = 0;
  }
  return to;
}

/// And back.
void narrow(const float* from, size_t rows, size_t gates, size_t units, float* to) {
  const size_t wide = padded(units);
  for (size_t i = 0; i < rows * gates; ++i, from += wide, to += units)
    for (size_t u = 0; u < units; ++u) to[u] = from[u];
}

inline Vector sigmoid(Vector x) {
  return all(0.5F) + all(0.5F) * hyperbolic_tangent(x * all(0.5F));
}

/// The rows of step number `at` of the recurrence.
inline size_t first_row(const Direction& d, size_t at) {
  return (d.reverse ? d.steps - 1 - at : at) * d.sequences;
}

/// Steps [begin, end) of the recurrence at a time: so many that a product of matrices is worth it, so few
/// that what it makes is still in a cache when it is used. Their rows lie side by side.
struct Chunk {
  size_t begin, end, first, rows;
  Chunk(const Direction& d, size_t from, size_t to)
      : begin(from),
        end(to),
        first(first_row(d, d.reverse ? to - 1 : from)),
        rows((to - from) * d.sequences) {}
};
inline size_t chunk_steps(const Direction& d, size_t rows) {
  return rows > d.sequences ? rows / d.sequences : 1;
}

void forward(const Direction& d, const Weights& w, const float* x, float* y, size_t y_step, float* tape,
             float* scratch) {
  const size_t wide = padded(d.hidden), gates = 3 * wide;
  const Tape t(d, tape);
  const Scratch s(d, scratch);
  const float* const bias = widened(w.bias, 4, 1, d.hidden, s.bias);
  pack(widened(w.input, d.inputs, 3, d.hidden, s.dinput), gates, 1, d.inputs, gates, s.input);
  if (d.steps > 1)
    pack(widened(w.recurrent, d.hidden, 3, d.hidden, s.drecurrent), gates, 1, d.hidden, gates, s.recurrent);
  for (size_t i = 0; i < d.sequences * gates; ++i) s.step[i] = 0;
  for (size_t i = 0; i < d.sequences * wide; ++i) s.state[i] = 0;
  const float* before = s.state;
  const size_t many = chunk_steps(d, kRowBlock);
  for (size_t from = 0; from < d.steps; from += many) {
    const Chunk chunk(d, from, from + many < d.steps ? from + many : d.steps);
    float* const in = t.gates + chunk.first * gates;
    for (size_t row = 0; row < chunk.rows; ++row)
      for (size_t i = 0; i < gates; ++i) in[row * gates + i] = bias[i];
    multiply(chunk.rows, rows_of(x + chunk.first * d.inputs, d.inputs), d.inputs, s.input, gates, in, gates,
             true);
    for (size_t at = chunk.begin; at < chunk.end; ++at) {
      const size_t first = first_row(d, at);
      if (at > 0)
        multiply(d.sequences, rows_of(before, wide), d.hidden, s.recurrent, gates, s.step, gates, false,
                 at % 2 == 0);
      for (size_t q = 0; q < d.sequences; ++q) {
        float *g = t.gates + (first + q) * gates, *a = t.inner + (first + q) * wide,
              *h = t.h + (first + q) * wide;
        const float *u = s.step + q * gates, *b = before + q * wide;
        for (size_t i = 0; i < wide; i += kLanes) {
          const Vector z = sigmoid(load(g + i) + load(u + i));
          const Vector r = sigmoid(load(g + wide + i) + load(u + wide + i));
          const Vector inner = load(u + 2 * wide + i) + load(bias + 3 * wide + i);
          const Vector n = hyperbolic_tangent(load(g + 2 * wide + i) + r * inner);
          store(g + i, z);
          store(g + wide + i, r);
          store(g + 2 * wide + i, n);
          store(a + i, inner);
          store(h + i, n + z * (load(b + i) - n));
        }
        float* out = y + (first + q) * y_step;
        for (size_t i = 0; i < d.hidden; ++i) out[i] = h[i];
      }
      before = t.h + first * wide;
    }
  }
}

/// Through one step: its gates become dL/d of what goes into them, `inner` dL/d of itself, the state dL/dh of
/// the step before but for what comes through the recurrent weights, for which s.step is left.
void step_backward(const Direction& d, size_t at, const float* dy, size_t dy_step, const Tape& t,
                   const Scratch& s) {
  const size_t wide = padded(d.hidden), gates = 3 * wide, first = first_row(d, at);
  float* const dbias = s.bias;
  for (size_t q = 0; q < d.sequences; ++q) {
    float *g = t.gates + (first + q) * gates, *a = t.inner + (first + q) * wide;
    float *u = s.step + q * gates, *dh = s.state + q * wide;
    const float* b = at > 0 ? t.h + (first_row(d, at - 1) + q) * wide : nullptr;
    const float* out = dy + (first + q) * dy_step;
    for (size_t i = 0; i < d.hidden; ++i) dh[i] += out[i];
    for (size_t i = 0; i < wide; i += kLanes) {
      const Vector z = load(g + i), r = load(g + wide + i), n = load(g + 2 * wide + i), inner = load(a + i);
      const Vector h = load(dh + i), was = b ? load(b + i) : Vector{};
      const Vector dn = h * (all(1) - z) * (all(1) - n * n);
      const Vector dz = h * (was - n) * z * (all(1) - z);
      const Vector dr = dn * inner * r * (all(1) - r);
      const Vector dinner = dn * r;
      store(g + i, dz);
      store(g + wide + i, dr);
      store(g + 2 * wide + i, dn);
      store(a + i, dinner);
      store(u + i, dz);
      store(u + wide + i, dr);
      store(u + 2 * wide + i, dinner);
      store(dh + i, h * z);
      store(dbias + i, load(dbias + i) + dz);
      store(dbias + wide + i, load(dbias + wide + i) + dr);
      store(dbias + 2 * wide + i, load(dbias + 2 * wide + i) + dn);
      store(dbias + 3 * wide + i, load(dbias + 3 * wide + i) + dinner);
    }
  }
}

void clear(float* to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = 0;
}

void backward(const Direction& d, const Weights& w, const float* x, const float* dy, size_t dy_step,
              float* tape, float* scratch, const Gradients& to) {
  const size_t wide = padded(d.hidden), gates = 3 * wide, inputs = padded(d.inputs);
  const Tape t(d, tape);
  const Scratch s(d, scratch);
  if (d.steps > 1)
    pack(widened(w.recurrent, d.hidden, 3, d.hidden, s.drecurrent), 1, gates, gates, d.hidden, s.recurrent);
  if (to.x) pack(widened(w.input, d.inputs, 3, d.hidden, s.dinput), 1, gates, gates, d.inputs, s.input);
  clear(s.drecurrent, wide * gates);
  clear(s.dinput, inputs * gates);
  clear(s.state, d.sequences * wide);
  clear(s.bias, 4 * wide);
  const size_t many = chunk_steps(d, kBlock);
  for (size_t end = d.steps; end > 0;) {
    const Chunk chunk(d, end > many ? end - many : 0, end);
    end = chunk.begin;
    for (size_t at = chunk.end; at-- > chunk.begin;) {
      step_backward(d, at, dy, dy_step, t, s);
      if (at > 0)
        multiply(d.sequences, rows_of(s.step, gates), gates, s.recurrent, wide, s.state, wide, true,
                 at % 2 == 0);
    }
    const float* const dgates = t.gates + chunk.first * gates;
    add_transposed(d.inputs, x + chunk.first * d.inputs, d.inputs, chunk.rows, dgates, gates, gates, s.dinput,
                   gates, s);
    // dU = sum of h'^T d. Of the first step h' is 0.
    if (const size_t begin = chunk.begin > 0 ? chunk.begin : 1; begin < chunk.end) {
      const Chunk known(d, begin, chunk.end);
      const float* before = t.h + Chunk(d, begin - 1, chunk.end - 1).first * wide;
      add_transposed(d.hidden, before, wide, known.rows, t.gates + known.first * gates, gates, 2 * wide,
                     s.drecurrent, gates, s);
      add_transposed(d.hidden, before, wide, known.rows, t.inner + known.first * wide, wide, wide,
                     s.drecurrent + 2 * wide, gates, s);
    }
    for (size_t r0 = 0; to.x && r0 < chunk.rows; r0 += kRowBlock) {
      const size_t r = r0 + kRowBlock < chunk.rows ? kRowBlock : chunk.rows - r0;
      multiply(r, rows_of(dgates + r0 * gates, gates), gates, s.input, inputs, s.dx, inputs, false);
      float* dx = to.x + (chunk.first + r0) * d.inputs;
      for (size_t i = 0; i < r; ++i)
        for (size_t j = 0; j < d.inputs; ++j) dx[i * d.inputs + j] += s.dx[i * inputs + j];
    }
  }
  narrow(s.bias, 4, 1, d.hidden, to.bias);
  narrow(s.drecurrent, d.hidden, 3, d.hidden, to.recurrent);
  narrow(s.dinput, d.inputs, 3, d.hidden, to.input);
}

}  // namespace

#define FLASH_TEXT_OF(x) #x
#define FLASH_TEXT(x) FLASH_TEXT_OF(x)
extern const Kernels kKernels{FLASH_TEXT(FLASH_KERNELS), WeightGradients::kRounding, forward, backward};

}  // namespace flash::gru::FLASH_KERNELS
