// Purpose: a learned policy as data: what the learner publishes and flashd evaluates itself, without torch.
// Absent, expired or refused means the fallback decides.
// Ownership: immutable values, shared as shared_ptr<const ...>.
// Thread rule: const functions, the caller's scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/layout.h"
#include "core/result.h"
#include "core/target.h"
#include "core/time.h"

namespace flash {

enum class Activation : std::uint8_t { Linear, Relu, Tanh };
std::string_view to_string(Activation a);  // "linear", "relu", "tanh"

/// y = act(norm(W x + b)); weights row-major [outputs][inputs], float32. `layer_norm`: the pre-activation has
/// its mean taken off and is divided by sqrt(variance + 1e-5) over the layer's outputs, without gain or bias.
struct DenseLayer {
  int inputs = 0;
  int outputs = 0;
  std::vector<float> weights;
  std::vector<float> bias;
  Activation activation = Activation::Linear;
  bool layer_norm = false;
};

/// What a policy does with its actor's outputs. What is not deterministic is drawn from (core/policy_head.h) where
/// that is allowed; everywhere else, and wherever a policy is judged, its most likely action counts.
enum class PolicyHead : std::uint8_t {
  Deterministic,  // the outputs are the action, the highest score decides
  Gaussian,       // continuous: the outputs are the means of independent normals
  Categorical,    // discrete: the scores are logits
};
std::string_view to_string(PolicyHead h);  // "deterministic", "gaussian", "categorical"

/// How far the learner wants online decisions to stray; flashd's own budget (Rule::exploration) caps it.
struct ExplorationSchedule {
  float epsilon = 0;  // cpu-frequency: share of steps with another level
  float sigma = 0;    // resource-limits: standard deviation of the noise on actions in [-1,1]
};

/// Is the policy no worse than the fallback? From logged steps alone, before the policy ever acted. Values
/// are in reward per step. It may delay OFFLINE -> ONLINE, never bring it about (AWARE Alg. 1 does that).
struct OffPolicyEstimate {
  bool given = false;
  std::string method;          // "fqe", "dr"
  float learned = 0;           // estimated reward per step of the policy
  float fallback = 0;          // mean reward per step of the logged fallback
  float lower = 0, upper = 0;  // 95 % interval of (learned - fallback)
  std::uint64_t transitions = 0;
};

/// Bounds of PolicySnapshot::log_sigma: what is narrower is as good as deterministic, what is wider as good as
/// uniform.
inline constexpr float kLeastLogSigma = -10, kMostLogSigma = 2;

struct PolicySnapshot {
  Task task = Task::ResourceLimits;
  /// What its inputs and outputs mean. Every policy of a file or message has one, and it is checked against the
  /// agent's; nothing: made in this process for the agent that it is given to.
  std::optional<SpaceLayout> layout;
  std::uint64_t version = 0;     // grows; one not above the last accepted is refused
  std::string model;             // lineage for people: "td3+bc, seed 1, 1200 updates"
  std::string algorithm;         // "ddpg", "td3+bc", "bcq", "q-learning", "tabular-q", "iql"
  std::uint64_t data_steps = 0;  // how many stored steps it was learned from
  WallTime expires{};            // after this the fallback decides

  std::vector<float> mean, scale;  // input normalisation (x - mean) / scale: mean and deviation in training
  std::vector<float> embedding;    // appended to the normalised state; may be empty

  /// resource-limits: outputs in [-1,1] per knob (policy/action_space.h). cpu-frequency: a score per level,
  /// the highest decides (but see stay_margin); where `critic` is empty and the head deterministic, the scores are
  /// Q-values.
  std::vector<DenseLayer> actor;
  PolicyHead head = PolicyHead::Deterministic;
  std::vector<float> log_sigma;  // Gaussian: per output, whatever the state; else empty
  /// cpu-frequency: the level in force stays unless another's score is higher by more than this. 0: the
  /// highest always decides.
  float stay_margin = 0;
  /// For explanation and guarding. resource-limits: input is normalised state, embedding, action in [-1,1];
  /// one output. cpu-frequency: input is normalised state and embedding; one Q-value per level. May be empty.
  std::vector<DenseLayer> critic;
  /// What a state is worth under the policy: input is normalised state and embedding; one output. The baseline
  /// of what a stochastic head's draws earn, so only there; may be empty.
  std::vector<DenseLayer> state_value;
  /// An output y of critic or state_value means value_offset + value_scale * y discounted reward (and so do
  /// Q-value scores).
  float value_offset = 0, value_scale = 1;

  ExplorationSchedule exploration;
  OffPolicyEstimate estimate;

  /// Shapes fit each other and the task's spaces, all numbers finite and within +-1e6, scales positive,
  /// sizes bounded (<= 8 layers of <= 1024, embedding <= 256), the head fits the form of actions. EINVAL names
  /// the part that is wrong.
  Result<void> validate(int state_dim, int action_dim) const;
};

/// The entry of cpu-frequency's state that says where in its range the frequency in force lies, [0,1]
/// (policy/observation_space.h has all).
inline constexpr std::size_t kPlaceInForce = 3;
/// cpu-frequency: the level with the highest score, the first of equals; but the level in force, as long as
/// no score is higher than its own by more than `stay_margin` (PolicySnapshot). REQUIRES: there are scores,
/// and a state if there is a margin.
std::size_t decided_level(std::span<const float> scores, std::span<const float> state, float stay_margin);

/// Floats that begin on a cache line.
template <class T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, std::size_t) { ::operator delete(p, kLine); }
  bool operator==(const CacheLineAllocator&) const = default;
};
using AlignedFloats = std::vector<float, CacheLineAllocator<float>>;

/// Scratch for the evaluator; sized once by CompiledPolicy::prepare(), so that a tick does not allocate.
struct EvaluatorScratch {
  AlignedFloats a, b, input;
};

struct KernelLayer;
struct NetworkKernel;

/// A network laid out for speed: all parameters in one block of padded rows, the constant part of the input
/// (embedding) folded into the first layer's bias, kernels chosen once for the CPU at hand. A result that is
/// not a number comes out as such: the caller checks.
class CompiledNetwork {
 public:
  CompiledNetwork();
  /// Inputs of `layers`: [state (normalised by mean, scale), embedding, rest]. What evaluate() takes is
  /// [state, rest]. REQUIRES: shapes that fit (PolicySnapshot::validate).
  CompiledNetwork(const std::vector<DenseLayer>& layers, std::span<const float> mean,
                  std::span<const float> scale, std::span<const float> embedding);
  ~CompiledNetwork();
  CompiledNetwork(const CompiledNetwork&);
  CompiledNetwork(CompiledNetwork&&) noexcept;
  CompiledNetwork& operator=(const CompiledNetwork&);
  CompiledNetwork& operator=(CompiledNetwork&&) noexcept;

  bool empty() const { return layers_.empty(); }
  int inputs() const { return inputs_; }
  int outputs() const { return outputs_; }
  void prepare(EvaluatorScratch& scratch) const;
  /// REQUIRES: x.size() == inputs(), prepare() was called. The result lies in the scratch.
  std::span<const float> evaluate(std::span<const float> x, EvaluatorScratch& scratch) const;
  /// d output[which] / d x, written to `gradient` (size inputs()), by backpropagation: about twice the work
  /// of evaluate(). relu's derivative at 0 is 0.
  void gradient(std::span<const float> x, int which, std::span<float> gradient) const;

  /// Another of network_kernels() than the fastest (core/network_kernels.h).
  void use(const NetworkKernel& kernel) { kernel_ = &kernel; }

 private:
  void normalise(std::span<const float> x, float* to) const;
  std::vector<KernelLayer> layers_;
  AlignedFloats parameters_;  // mean, 1 / scale, then rows and biases in the order of use
  const NetworkKernel* kernel_ = nullptr;
  int inputs_ = 0, outputs_ = 0;
  std::size_t state_ = 0, widest_ = 0;
};

/// A snapshot ready to decide with.
struct CompiledPolicy {
  explicit CompiledPolicy(PolicySnapshot s);  // REQUIRES: validate() passed
  PolicySnapshot snapshot;
  CompiledNetwork actor, critic, state_value;
};

}  // namespace flash
