// The body of one NetworkKernel; network_kernels.cc includes it once per instruction set with
//   KERNEL_NAMESPACE, KERNEL_NAME
//   KERNEL_TARGET   the attribute that lets functions use the instruction set
//   KERNEL_WIDTH    floats of a Vec: 4, 8 or 16
//   Vec, LOAD, STORE, SPLAT, FMA, MIN, MAX; LOAD_HALF and STORE_HALF (the lower half, zeros above) for width
//   16; QUARTERS(v) adds up the four-float parts of v
// MIN(a, b) and MAX(a, b) give b where one is NaN.
// A template with a target parameter cannot be written: inlining refuses to cross targets.

namespace KERNEL_NAMESPACE {
namespace {

/// y[0, stride) = init + sum over rows r of x[r] * w[r]; K vectors wide, U rows in flight so that additions
/// do not wait for each other. Half: the last vector is half a one (width 16).
template <int K, int U, bool Half>
KERNEL_TARGET inline void columns_block(std::size_t rows, std::size_t stride, const float* w,
                                        const float* init, const float* x, float* y) {
  Vec sum[U][K];
  FLASH_UNROLL for (int u = 0; u < U; ++u) {
    FLASH_UNROLL for (int k = 0; k < K; ++k) sum[u][k] = SPLAT(0.0F);
  }
  if (init) {
    FLASH_UNROLL for (int k = 0; k < K; ++k) {
      if (Half && k == K - 1)
        sum[0][k] = LOAD_HALF(init + k * KERNEL_WIDTH);
      else
        sum[0][k] = LOAD(init + k * KERNEL_WIDTH);
    }
  }
  std::size_t r = 0;
  for (; r + U <= rows; r += U) {
    FLASH_UNROLL for (int u = 0; u < U; ++u) {
      const Vec factor = SPLAT(x[r + static_cast<std::size_t>(u)]);
      FLASH_UNROLL for (int k = 0; k < K; ++k) {
        const float* at = w + k * KERNEL_WIDTH;
        sum[u][k] = FMA((Half && k == K - 1) ? LOAD_HALF(at) : LOAD(at), factor, sum[u][k]);
      }
      w += stride;
    }
  }
  for (; U > 1 && r < rows; ++r) {
    const Vec factor = SPLAT(x[r]);
    FLASH_UNROLL for (int k = 0; k < K; ++k) {
      const float* at = w + k * KERNEL_WIDTH;
      sum[0][k] = FMA((Half && k == K - 1) ? LOAD_HALF(at) : LOAD(at), factor, sum[0][k]);
    }
    w += stride;
  }
  FLASH_UNROLL for (int k = 0; k < K; ++k) {
    Vec total = sum[0][k];
    FLASH_UNROLL for (int u = 1; u < U; ++u) total = total + sum[u][k];
    if (Half && k == K - 1)
      STORE_HALF(y + k * KERNEL_WIDTH, total);
    else
      STORE(y + k * KERNEL_WIDTH, total);
  }
}

template <bool Half>
KERNEL_TARGET inline void columns_some(int vectors, std::size_t rows, std::size_t stride, const float* w,
                                       const float* init, const float* x, float* y) {
  switch (vectors) {
    case 1:
      return columns_block<1, 4, Half>(rows, stride, w, init, x, y);
    case 2:
      return columns_block<2, 4, Half>(rows, stride, w, init, x, y);
    case 3:
      return columns_block<3, 3, Half>(rows, stride, w, init, x, y);
    case 4:
      return columns_block<4, 2, Half>(rows, stride, w, init, x, y);
    case 5:
      return columns_block<5, 2, Half>(rows, stride, w, init, x, y);
    default:
      return columns_block<6, 2, Half>(rows, stride, w, init, x, y);
  }
}

KERNEL_TARGET inline void columns(std::size_t rows, std::size_t n, const float* w, const float* init,
                                  const float* x, float* y) {
  constexpr int kMost = 6;  // 12 sums, a factor and weights fit 16 registers
  const std::size_t stride = padded(n);
  int left = static_cast<int>((stride + KERNEL_WIDTH - 1) / KERNEL_WIDTH);
  const bool half = stride % KERNEL_WIDTH != 0;
  for (std::size_t at = 0; left > 0;) {
    const int blocks = (left + kMost - 1) / kMost;
    const int take = (left + blocks - 1) / blocks;  // evenly, so that no narrow rest waits for itself
    const float* from = init ? init + at : nullptr;
    if (half && take == left)
      columns_some<KERNEL_WIDTH == 16>(take, rows, stride, w + at, from, x, y + at);
    else
      columns_some<false>(take, rows, stride, w + at, from, x, y + at);
    at += static_cast<std::size_t>(take) * KERNEL_WIDTH;
    left -= take;
  }
  // Zero weights times an infinity are NaN.
  for (std::size_t i = n; i < stride; ++i) y[i] = 0;
}

KERNEL_TARGET inline float sum_of(Vec v) {
  const Float4 four = QUARTERS(v);
  return (four[0] + four[1]) + (four[2] + four[3]);
}

/// y[r] = init[r] + w[r] . x for each row, n entries long.
KERNEL_TARGET inline void dots(std::size_t rows, std::size_t n, const float* w, const float* init,
                               const float* x, float* y) {
  const std::size_t stride = padded(n);
  for (std::size_t r = 0; r < rows; ++r, w += stride) {
    Vec sum = SPLAT(0.0F), other = SPLAT(0.0F);
    std::size_t i = 0;
    for (; i + 2 * KERNEL_WIDTH <= stride; i += 2 * KERNEL_WIDTH) {
      sum = FMA(LOAD(w + i), LOAD(x + i), sum);
      other = FMA(LOAD(w + i + KERNEL_WIDTH), LOAD(x + i + KERNEL_WIDTH), other);
    }
    if (i + KERNEL_WIDTH <= stride) {
      sum = FMA(LOAD(w + i), LOAD(x + i), sum);
      i += KERNEL_WIDTH;
    }
    if (i < stride) other = FMA(LOAD_HALF(w + i), LOAD_HALF(x + i), other);
    sum = sum + other;
    y[r] = (init ? init[r] : 0.0F) + sum_of(sum);
  }
  for (std::size_t i = rows; i < padded(rows); ++i) y[i] = 0;
}

KERNEL_TARGET void affine(const KernelLayer& layer, const float* parameters, const float* x, float* y) {
  const float* w = parameters + layer.weights;
  const float* bias = parameters + layer.bias;
  if (layer.row_per_output)
    dots(layer.outputs, layer.inputs, w, bias, x, y);
  else
    columns(layer.inputs, layer.outputs, w, bias, x, y);
}

KERNEL_TARGET void transposed(const KernelLayer& layer, const float* parameters, const float* x, float* y) {
  const float* w = parameters + layer.weights;
  if (layer.row_per_output)
    columns(layer.outputs, layer.inputs, w, nullptr, x, y);
  else
    dots(layer.inputs, layer.outputs, w, nullptr, x, y);
}

KERNEL_TARGET float normalise(float* x, std::size_t n) {
  Double4 sum = {};
  const std::size_t whole = n / 4 * 4;
  for (std::size_t i = 0; i < whole; i += 4) {
    Float4 part;
    std::memcpy(&part, x + i, sizeof part);
    sum += __builtin_convertvector(part, Double4);
  }
  double mean = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  for (std::size_t i = whole; i < n; ++i) mean += x[i];
  mean /= static_cast<double>(n);
  Double4 squares = {};
  for (std::size_t i = 0; i < whole; i += 4) {
    Float4 part;
    std::memcpy(&part, x + i, sizeof part);
    const Double4 d = __builtin_convertvector(part, Double4) - mean;
    squares += d * d;
  }
  double variance = (squares[0] + squares[1]) + (squares[2] + squares[3]);
  for (std::size_t i = whole; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const double scale = 1 / std::sqrt(variance / static_cast<double>(n) + kLayerNormEpsilon);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>((x[i] - mean) * scale);
  return static_cast<float>(scale);
}

/// x P(x^2) / Q(x^2), both of degree 4, fitted to tanh on [-8, 8] for the least relative error (6.4e-9; with
/// float32 arithmetic 3.3e-7). Beyond, tanh is 1 to float32's last place but one.
KERNEL_TARGET inline Vec tanh_of(Vec x) {
  x = MIN(SPLAT(8.0F), MAX(SPLAT(-8.0F), x));
  const Vec u = x * x;
  Vec p = FMA(SPLAT(1.5230604e-8F), u, SPLAT(2.18947932e-5F));
  p = FMA(p, u, SPLAT(3.57160593e-3F));
  p = FMA(p, u, SPLAT(0.134445046F));
  p = FMA(p, u, SPLAT(0.99999999F));
  Vec q = FMA(SPLAT(8.52252181e-7F), u, SPLAT(3.41130498e-4F));
  q = FMA(q, u, SPLAT(2.6164473e-2F));
  q = FMA(q, u, SPLAT(0.467778319F));
  q = FMA(q, u, SPLAT(1.0F));
  const Vec y = x * p / q;
  return MIN(SPLAT(1.0F), MAX(SPLAT(-1.0F), y));
}

KERNEL_TARGET void activate(Activation f, float* x, std::size_t n) {
  if (f == Activation::Linear) return;
  const std::size_t end = padded(n);
  std::size_t i = 0;
  if (f == Activation::Tanh) {
    for (; i + KERNEL_WIDTH <= end; i += KERNEL_WIDTH) STORE(x + i, tanh_of(LOAD(x + i)));
    if (i < end) STORE_HALF(x + i, tanh_of(LOAD_HALF(x + i)));
  } else {
    for (; i + KERNEL_WIDTH <= end; i += KERNEL_WIDTH) STORE(x + i, MAX(SPLAT(0.0F), LOAD(x + i)));
    if (i < end) STORE_HALF(x + i, MAX(SPLAT(0.0F), LOAD_HALF(x + i)));
  }
}

KERNEL_TARGET const float* forward(std::span<const KernelLayer> layers, const float* parameters,
                                   const float* x, float* a, float* b) {
  for (const KernelLayer& layer : layers) {
    affine(layer, parameters, x, a);
    if (layer.layer_norm) normalise(a, layer.outputs);
    activate(layer.activation, a, layer.outputs);
    x = a;
    std::swap(a, b);
  }
  return x;
}

}  // namespace

constexpr NetworkKernel kKernel{KERNEL_NAME, forward, affine, transposed, normalise, activate};

}  // namespace KERNEL_NAMESPACE
