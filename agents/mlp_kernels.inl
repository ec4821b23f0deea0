// The kernels, written once. Each mlp_kernels_*.cc sets FLASH_KERNELS (the namespace), FLASH_LANES (floats
// per vector) and FLASH_ROWS (rows of a tile) and is compiled for its instruction set. No header with inline
// functions may come in here: the linker could take their AVX-512 copy for the whole program.
#include "agents/mlp_kernels.h"

namespace flash::kernels::FLASH_KERNELS {
namespace {

using std::size_t;
constexpr size_t kLanes = FLASH_LANES;
constexpr size_t kRows = FLASH_ROWS;  // kRows * kColumns accumulators fit the registers
constexpr size_t kColumns = 3;

#include "agents/vectors.inl"

/// A matrix whose element (row, k) is data[row * row_step + k * k_step].
struct Left {
  const float* data;
  size_t row_step, k_step;
};

template <size_t Rows, size_t Columns>
inline void tile(const Left& a, size_t k_end, const float* b, size_t b_step, const float* bias, float* c,
                 size_t c_step, size_t last) {
  Vector sum[Rows][Columns];
  for (size_t j = 0; j < Columns; ++j) {
    const Vector start = bias ? load(bias + j * kLanes) : Vector{};
    for (size_t i = 0; i < Rows; ++i) sum[i][j] = start;
  }
  const float* ak = a.data;
  for (size_t k = 0; k < k_end; ++k, ak += a.k_step, b += b_step) {
    Vector bk[Columns];
    for (size_t j = 0; j < Columns; ++j) bk[j] = load(b + j * kLanes);
    for (size_t i = 0; i < Rows; ++i) {
      const Vector aik = all(ak[i * a.row_step]);
      for (size_t j = 0; j < Columns; ++j) sum[i][j] += aik * bk[j];
    }
  }
  for (size_t i = 0; i < Rows; ++i) {
    float* ci = c + i * c_step;
    for (size_t j = 0; j + 1 < Columns; ++j) store(ci + j * kLanes, sum[i][j]);
    if (last == kLanes) {
      store(ci + (Columns - 1) * kLanes, sum[i][Columns - 1]);
    } else {
      float lanes[kLanes];
      store(lanes, sum[i][Columns - 1]);
      for (size_t l = 0; l < last; ++l) ci[(Columns - 1) * kLanes + l] = lanes[l];
    }
  }
}

template <size_t Columns>
inline void column_of_tiles(size_t rows, Left a, size_t k_end, const float* b, size_t b_step,
                            const float* bias, float* c, size_t c_step, size_t last) {
  for (; rows >= kRows; rows -= kRows, a.data += kRows * a.row_step, c += kRows * c_step)
    tile<kRows, Columns>(a, k_end, b, b_step, bias, c, c_step, last);
  for (; rows > 0; --rows, a.data += a.row_step, c += c_step)
    tile<1, Columns>(a, k_end, b, b_step, bias, c, c_step, last);
}

/// C [rows][columns] = bias + A [rows][k_end] B [k_end][columns]. Rows of B and the bias are padded.
void multiply(size_t rows, size_t columns, Left a, size_t k_end, const float* b, size_t b_step,
              const float* bias, float* c, size_t c_step) {
  while (columns > 0) {
    const size_t vectors = round_up(columns) / kLanes;
    const size_t now = vectors < kColumns ? vectors : kColumns;
    const size_t width = now * kLanes < columns ? now * kLanes : columns;
    const size_t last = width - (now - 1) * kLanes;
    if (now == 3)
      column_of_tiles<3>(rows, a, k_end, b, b_step, bias, c, c_step, last);
    else if (now == 2)
      column_of_tiles<2>(rows, a, k_end, b, b_step, bias, c, c_step, last);
    else
      column_of_tiles<1>(rows, a, k_end, b, b_step, bias, c, c_step, last);
    columns -= width;
    b += width;
    c += width;
    if (bias) bias += width;
  }
}

inline float sum_of_lanes(Vector v) {
  float lanes[kLanes];
  store(lanes, v);
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

/// 1 for the first n entries of a row, 0 for its padding.
struct Mask {
  float of[kMaxWidth];
  Mask(size_t n, size_t step) {
    for (size_t i = 0; i < step; ++i) of[i] = i < n ? 1 : 0;
  }
};

/// Mean off, divided by the deviation, row by row (DenseLayer::layer_norm). Padding is and stays 0.
void normalise(float* z, size_t n, size_t batch, size_t step, float* inverse_deviation) {
  const Mask mask(n, step);
  const float share = 1 / static_cast<float>(n);
  for (size_t b = 0; b < batch; ++b, z += step) {
    Vector sum{}, squares{};
    for (size_t i = 0; i < step; i += kLanes) sum += load(z + i);
    const Vector mean = all(sum_of_lanes(sum) * share);
    for (size_t i = 0; i < step; i += kLanes) {
      const Vector centred = (load(z + i) - mean) * load(mask.of + i);
      squares += centred * centred;
      store(z + i, centred);
    }
    const float inverse = 1 / __builtin_sqrtf(sum_of_lanes(squares) * share + 1e-5F);
    for (size_t i = 0; i < step; i += kLanes) store(z + i, load(z + i) * all(inverse));
    inverse_deviation[b] = inverse;
  }
}

/// dL/dz of dL/dn in place: (dn - mean(dn) - n mean(dn n)) / deviation.
void normalise_backward(float* d, const float* normalised, size_t n, size_t batch, size_t step,
                        const float* inverse_deviation) {
  const Mask mask(n, step);
  const float share = 1 / static_cast<float>(n);
  for (size_t b = 0; b < batch; ++b, d += step, normalised += step) {
    Vector sum{}, products{};
    for (size_t i = 0; i < step; i += kLanes) {
      const Vector di = load(d + i);
      sum += di;
      products += di * load(normalised + i);
    }
    const Vector mean = all(sum_of_lanes(sum) * share), slope = all(sum_of_lanes(products) * share);
    const Vector inverse = all(inverse_deviation[b]);
    for (size_t i = 0; i < step; i += kLanes)
      store(d + i, (load(d + i) - mean - load(normalised + i) * slope) * inverse * load(mask.of + i));
  }
}

constexpr int kRelu = 1, kTanh = 2;

void activate(int activation, const float* z, float* y, size_t batch, size_t step) {
  if (activation == kTanh) {  // of 0, the padding, it is 0
    for (size_t i = 0; i < batch * step; i += kLanes) store(y + i, hyperbolic_tangent(load(z + i)));
  } else if (activation == kRelu) {
    for (size_t i = 0; i < batch * step; ++i) y[i] = z[i] > 0 ? z[i] : 0;
  } else if (z != y) {
    for (size_t i = 0; i < batch * step; ++i) y[i] = z[i];
  }
}

void activate_backward(int activation, const float* y, float* d, size_t batch, size_t step) {
  if (activation == kTanh) {
    for (size_t i = 0; i < batch * step; ++i) d[i] *= 1 - y[i] * y[i];
  } else if (activation == kRelu) {
    for (size_t i = 0; i < batch * step; ++i) d[i] = y[i] > 0 ? d[i] : 0;
  }
}

/// Where things of a layer lie on the tape.
struct Tape {
  float* y;
  float* normalised;         // null without layer norm
  float* inverse_deviation;  // one per row
};

float* place(const Layer& layer, size_t batch, float* at, Tape& t) {
  const size_t n = batch * padded(layer.outputs);
  t.y = at;
  at += n;
  t.normalised = t.inverse_deviation = nullptr;
  if (layer.layer_norm) {
    t.normalised = at;
    t.inverse_deviation = at + n;
    at += n + (batch + kPad - 1) / kPad * kPad;
  }
  return at;
}

void forward(const Shape& shape, const float* parameters, const float* x, int nx, const float* rest,
             size_t batch, float* tape, float* scratch, float* y) {
  const auto inputs = static_cast<size_t>(shape.layer[0].inputs), own = static_cast<size_t>(nx);
  size_t in_step = padded(shape.layer[0].inputs);
  float* in = tape;
  for (size_t b = 0; b < batch; ++b) {
    float* row = in + b * in_step;
    for (size_t i = 0; i < own; ++i) row[i] = x[b * own + i];
    for (size_t i = own; i < inputs; ++i) row[i] = rest[b * (inputs - own) + i - own];
    for (size_t i = inputs; i < in_step; ++i) row[i] = 0;
  }
  tape += batch * in_step;
  for (int l = 0; l < shape.layers; ++l) {
    const Layer& layer = shape.layer[l];
    const auto n_in = static_cast<size_t>(layer.inputs), n_out = static_cast<size_t>(layer.outputs);
    const size_t step = padded(layer.outputs);
    // The weights transposed and padded: [inputs][step], then the bias.
    for (size_t i = 0; i < n_in; ++i) {
      for (size_t o = 0; o < n_out; ++o) scratch[i * step + o] = parameters[o * n_in + i];
      for (size_t o = n_out; o < step; ++o) scratch[i * step + o] = 0;
    }
    float* bias = scratch + n_in * step;
    for (size_t o = 0; o < step; ++o) bias[o] = o < n_out ? parameters[n_out * n_in + o] : 0;
    parameters += n_out * (n_in + 1);
    Tape t;
    tape = place(layer, batch, tape, t);
    float* z = layer.layer_norm ? t.normalised : t.y;
    if (round_up(n_out) < step)  // vectors narrower than the padding leave a part of it
      for (size_t b = 0; b < batch; ++b)
        for (size_t o = round_up(n_out); o < step; ++o) z[b * step + o] = 0;
    multiply(batch, round_up(n_out), {in, in_step, 1}, n_in, scratch, step, bias, z, step);
    if (layer.layer_norm) normalise(z, n_out, batch, step, t.inverse_deviation);
    activate(layer.activation, z, t.y, batch, step);
    in = t.y;
    in_step = step;
  }
  const auto outputs = static_cast<size_t>(shape.layer[shape.layers - 1].outputs);
  for (size_t b = 0; b < batch; ++b)
    for (size_t o = 0; o < outputs; ++o) y[b * outputs + o] = in[b * in_step + o];
}

void backward(const Shape& shape, const float* parameters, const float* tape, const float* dy, size_t batch,
              float* scratch, float* dx, int nx, float* drest, float* dparameters) {
  Tape at[kMaxLayers];
  const float* weights[kMaxLayers];
  size_t offset[kMaxLayers], n = 0, widest = 0;
  const size_t input_step = padded(shape.layer[0].inputs);
  widest = input_step;
  float* next = const_cast<float*>(tape) + batch * input_step;
  for (int l = 0; l < shape.layers; ++l) {
    next = place(shape.layer[l], batch, next, at[l]);
    offset[l] = n;
    weights[l] = parameters + n;
    n += static_cast<size_t>(shape.layer[l].outputs) * (static_cast<size_t>(shape.layer[l].inputs) + 1);
    if (padded(shape.layer[l].outputs) > widest) widest = padded(shape.layer[l].outputs);
  }
  float* d = scratch;  // dL/d of the layer's output, then of its pre-activation
  float* d_in = d + batch * widest;
  float* packed = d_in + batch * widest;
  const Layer& top = shape.layer[shape.layers - 1];
  const auto outputs = static_cast<size_t>(top.outputs);
  size_t step = padded(top.outputs);
  for (size_t b = 0; b < batch; ++b)
    for (size_t o = 0; o < step; ++o) d[b * step + o] = o < outputs ? dy[b * outputs + o] : 0;
  for (int l = shape.layers - 1; l >= 0; --l) {
    const Layer& layer = shape.layer[l];
    const auto n_in = static_cast<size_t>(layer.inputs), n_out = static_cast<size_t>(layer.outputs);
    const float* in = l > 0 ? at[l - 1].y : tape;
    const size_t in_step = padded(layer.inputs);
    activate_backward(layer.activation, at[l].y, d, batch, step);
    if (layer.layer_norm)
      normalise_backward(d, at[l].normalised, n_out, batch, step, at[l].inverse_deviation);
    if (dparameters) {
      // dW [outputs][inputs] = sum over the batch of d^T in; db = sum of d.
      float* dw = dparameters + offset[l];
      multiply(n_out, n_in, {d, 1, step}, batch, in, in_step, nullptr, dw, n_in);
      float* db = dw + n_out * n_in;
      for (size_t o = 0; o < n_out; ++o) db[o] = 0;
      for (size_t b = 0; b < batch; ++b)
        for (size_t o = 0; o < n_out; ++o) db[o] += d[b * step + o];
    }
    if (l == 0 && !dx && !drest) return;
    for (size_t o = 0; o < n_out; ++o) {
      for (size_t i = 0; i < n_in; ++i) packed[o * in_step + i] = weights[l][o * n_in + i];
      for (size_t i = n_in; i < in_step; ++i) packed[o * in_step + i] = 0;
    }
    if (round_up(n_in) < in_step)
      for (size_t b = 0; b < batch; ++b)
        for (size_t i = round_up(n_in); i < in_step; ++i) d_in[b * in_step + i] = 0;
    multiply(batch, round_up(n_in), {d, step, 1}, n_out, packed, in_step, nullptr, d_in, in_step);
    float* other = d;
    d = d_in;
    d_in = other;
    step = in_step;
  }
  const auto inputs = static_cast<size_t>(shape.layer[0].inputs), own = static_cast<size_t>(nx);
  for (size_t b = 0; b < batch; ++b) {
    if (dx)
      for (size_t i = 0; i < own; ++i) dx[b * own + i] = d[b * step + i];
    if (drest)
      for (size_t i = own; i < inputs; ++i) drest[b * (inputs - own) + i - own] = d[b * step + i];
  }
}

double sum_of_squares(const float* g, size_t n) {
  Vector sum{};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vector x = load(g + i);
    sum += x * x;
  }
  double total = 0;
  for (size_t l = 0; l < kLanes; ++l) total += sum[l];
  for (; i < n; ++i) total += double(g[i]) * g[i];
  return total;
}

void adam(const AdamStep& s, const float* __restrict g, size_t n, float* __restrict w, float* __restrict m,
          float* __restrict v) {
  const float b1 = s.beta1, b2 = s.beta2, rate = s.rate, second = s.second, epsilon = s.epsilon,
              shorten = s.shorten;
  for (size_t i = 0; i < n; ++i) {
    const float gi = g[i] * shorten;
    m[i] = b1 * m[i] + (1 - b1) * gi;
    v[i] = b2 * v[i] + (1 - b2) * gi * gi;
    w[i] -= rate * m[i] / (__builtin_sqrtf(v[i]) * second + epsilon);
  }
}

void lerp(float* __restrict to, const float* __restrict from, float share, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += share * (from[i] - to[i]);
}

}  // namespace

#define FLASH_TEXT_OF(x) #x
#define FLASH_TEXT(x) FLASH_TEXT_OF(x)
extern const Kernels kKernels{FLASH_TEXT(FLASH_KERNELS), forward, backward, sum_of_squares, adam, lerp};

}  // namespace flash::kernels::FLASH_KERNELS
