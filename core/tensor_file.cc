#include "core/tensor_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/digest.h"
#include "core/durable_file.h"
#include "core/json.h"

namespace flash {
namespace {

using nlohmann::json;

constexpr std::string_view kMagic = "FLASHTF1";
constexpr std::size_t kLengthBytes = 4;
constexpr int kMaxHeaderDepth = 16;
constexpr std::size_t kMaxHeaderValues = 1u << 17;  // numbers, texts, objects ... of the whole header
constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxKind = 64;
constexpr std::size_t kMaxRank = 8;
constexpr int kFormat = 1;
constexpr mode_t kFileMode = 0644;

constexpr std::size_t kMaxPolicyLayers = 8;

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

// --- numbers as bytes -----------------------------------------------------------------------------------

void put_u32(std::string& out, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>((value >> shift) & 0xFF);
}

std::uint32_t get_u32(const char* bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

void put_floats(std::string& out, std::span<const float> values) {
  if constexpr (std::endian::native == std::endian::little) {
    out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  } else {
    for (float value : values) put_u32(out, std::bit_cast<std::uint32_t>(value));
  }
}

std::vector<float> get_floats(std::string_view bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if constexpr (std::endian::native == std::endian::little) {
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  } else {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = std::bit_cast<float>(get_u32(bytes.data() + i * sizeof(float)));
  }
  return values;
}

/// Product of the shape, or nothing where it is above `limit`.
std::optional<std::size_t> count(const std::vector<std::int64_t>& shape, std::size_t limit) {
  std::size_t n = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension == 0) return 0;
    const auto d = static_cast<std::uint64_t>(dimension);
    if (dimension < 0 || d > limit / n) return std::nullopt;
    n *= d;
  }
  return n <= limit ? std::optional(n) : std::nullopt;
}

// --- header ---------------------------------------------------------------------------------------------

/// Walks the header without keeping anything: what is nested too deep or has too many parts is refused before
/// a tree of it is built (copies and dumps of json recurse).
struct HeaderBounds {
  int depth = 0;
  std::size_t values = 0;
  std::string wrong;

  bool value() {
    if (++values <= kMaxHeaderValues) return true;
    wrong = "more than " + std::to_string(kMaxHeaderValues) + " values";
    return false;
  }
  bool open() {
    if (++depth <= kMaxHeaderDepth) return value();
    wrong = "nested deeper than " + std::to_string(kMaxHeaderDepth);
    return false;
  }
  bool close() {
    --depth;
    return true;
  }

  bool null() { return value(); }
  bool boolean(bool) { return value(); }
  bool number_integer(json::number_integer_t) { return value(); }
  bool number_unsigned(json::number_unsigned_t) { return value(); }
  bool number_float(json::number_float_t, const std::string&) { return value(); }
  bool string(std::string&) { return value(); }
  bool binary(json::binary_t&) { return value(); }
  bool start_object(std::size_t) { return open(); }
  bool key(std::string&) { return value(); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) {
    wrong = "not JSON at byte " + std::to_string(position);
    return false;
  }
};

Result<json> parse_header(std::string_view text) {
  HeaderBounds bounds;
  if (!json::sax_parse(text, &bounds)) return invalid("header: " + bounds.wrong);
  json header = json::parse(text, nullptr, false);
  if (!header.is_object()) return invalid("header: not an object");
  return header;
}

/// The entry `key` of `object`, or null.
const json& entry(const json& object, const char* key) {
  static const json none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

/// Refuses keys beyond `known`.
Result<void> only(const json& object, std::initializer_list<std::string_view> known,
                  const std::string& where) {
  for (const auto& item : object.items())
    if (std::find(known.begin(), known.end(), item.key()) == known.end())
      return invalid(where + ": unknown key '" + item.key().substr(0, kMaxName) + "'");
  return {};
}

Result<Tensor> read_array_header(const json& from, const std::string& where) {
  if (!from.is_object()) return invalid(where + ": not an object");
  const json& name = entry(from, "name");
  if (!name.is_string() || name.get_ref<const std::string&>().empty() ||
      name.get_ref<const std::string&>().size() > kMaxName)
    return invalid(where + ": name is not a text of 1 to 256 bytes");
  Tensor tensor;
  tensor.name = name.get<std::string>();
  const std::string named = where + " '" + tensor.name + "'";
  FLASH_CHECK(only(from, {"name", "shape"}, named));
  const json& shape = entry(from, "shape");
  if (!shape.is_array() || shape.size() > kMaxRank)
    return invalid(named + ": shape is not a list of at most 8 numbers");
  for (const json& dimension : shape) {
    if (!dimension.is_number_unsigned() || dimension.get<std::uint64_t>() > kTensorFileMaxBytes)
      return invalid(named + ": shape has an entry that is not a size");
    tensor.shape.push_back(dimension.get<std::int64_t>());
  }
  return tensor;
}

// --- files ----------------------------------------------------------------------------------------------

}  // namespace

const Tensor* TensorFile::find(std::string_view name) const {
  for (const Tensor& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

std::string encode(const TensorFile& file) {
  json arrays = json::array();
  std::size_t numbers = 0;
  for (const Tensor& tensor : file.tensors) {
    assert(count(tensor.shape, kTensorFileMaxBytes) == tensor.values.size());
    arrays.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
    numbers += tensor.values.size();
  }
  const json header{
      {"kind", file.kind}, {"format", file.format}, {"meta", *file.meta}, {"arrays", std::move(arrays)}};
  // Names may come from elsewhere: bytes that are not UTF-8 are replaced, not thrown about.
  const std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string out;
  out.reserve(kMagic.size() + kLengthBytes + text.size() + numbers * sizeof(float) + kDigestBytes);
  out += kMagic;
  put_u32(out, static_cast<std::uint32_t>(text.size()));
  out += text;
  for (const Tensor& tensor : file.tensors) put_floats(out, tensor.values);
  out += sha256(out);
  return out;
}

Result<TensorFile> decode_tensor_file(std::string_view bytes, std::size_t max_header_bytes) {
  if (bytes.size() > kTensorFileMaxBytes)
    return invalid(std::to_string(bytes.size()) + " bytes, at most " + std::to_string(kTensorFileMaxBytes) +
                   " are allowed");
  if (bytes.substr(0, kMagic.size()) != kMagic) return invalid("magic: not a tensor file");
  if (bytes.size() < kMagic.size() + kLengthBytes + kDigestBytes) return invalid("header ends early");
  const std::size_t header_bytes = get_u32(bytes.data() + kMagic.size());
  if (header_bytes > max_header_bytes)
    return invalid("header of " + std::to_string(header_bytes) + " bytes, at most " +
                   std::to_string(max_header_bytes) + " are allowed");
  const std::size_t data_start = kMagic.size() + kLengthBytes + header_bytes;
  if (bytes.size() < data_start + kDigestBytes) return invalid("header ends early");
  // Before anything is interpreted: what a disk or a torn write damaged goes no further.
  const std::size_t data_end = bytes.size() - kDigestBytes;
  if (sha256(bytes.substr(0, data_end)) != bytes.substr(data_end))
    return invalid("digest differs: damaged or cut off");

  FLASH_TRY(const json header, parse_header(bytes.substr(kMagic.size() + kLengthBytes, header_bytes)));
  FLASH_CHECK(only(header, {"kind", "format", "meta", "arrays"}, "header"));
  TensorFile file;
  const json& kind = entry(header, "kind");
  if (!kind.is_string() || kind.get_ref<const std::string&>().size() > kMaxKind)
    return invalid("header: kind is not a text of at most 64 bytes");
  file.kind = kind.get<std::string>();
  const json& format = entry(header, "format");
  if (!format.is_number_integer() || format != kFormat)
    return invalid("header: format is not " + std::to_string(kFormat));
  file.format = kFormat;
  const json& meta = entry(header, "meta");
  if (!meta.is_object()) return invalid("header: meta is not an object");
  *file.meta = meta;
  const json& arrays = entry(header, "arrays");
  if (!arrays.is_array() || arrays.size() > kTensorFileMaxArrays)
    return invalid("header: arrays is not a list of at most " + std::to_string(kTensorFileMaxArrays));

  // All sizes first; they must be exactly what is there, so nothing is allocated that was not sent.
  std::size_t left = data_end - data_start;
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::string where = "array " + std::to_string(i);
    FLASH_TRY(Tensor tensor, read_array_header(arrays[i], where));
    if (!names.insert(tensor.name).second) return invalid(where + " '" + tensor.name + "': named twice");
    const auto numbers = count(tensor.shape, left / sizeof(float));
    if (!numbers)
      return invalid(where + " '" + tensor.name + "': larger than the " + std::to_string(left) +
                     " bytes that are left");
    left -= *numbers * sizeof(float);
    file.tensors.push_back(std::move(tensor));
  }
  if (left != 0) return invalid(std::to_string(left) + " bytes after the last array");
  std::size_t at = data_start;
  for (Tensor& tensor : file.tensors) {
    const std::size_t size = *count(tensor.shape, kTensorFileMaxBytes) * sizeof(float);
    tensor.values = get_floats(bytes.substr(at, size));
    at += size;
  }
  return file;
}

Result<void> write_tensor_file(const std::string& path, const TensorFile& file) {
  const std::string bytes = encode(file);
  if (bytes.size() > kTensorFileMaxBytes)
    return Error(std::errc::file_too_large, path + ": " + std::to_string(bytes.size()) +
                                                " bytes, a tensor file may have " +
                                                std::to_string(kTensorFileMaxBytes));
  if (get_u32(bytes.data() + kMagic.size()) > kTensorFileMaxHeaderBytes ||
      file.tensors.size() > kTensorFileMaxArrays)
    return Error(std::errc::file_too_large, path + ": more arrays or a longer header than may be read back");
  return write_durable_file(path, bytes, {.mode = kFileMode, .beside = ".tmp"});
}

Result<TensorFile> read_tensor_file(const std::string& path) {
  // O_NONBLOCK: a FIFO in the file's place must not hold us up.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return Error::from_errno(errno, "open " + path);
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return Error::from_errno(errno, "stat " + path);
  if (!S_ISREG(st.st_mode)) return invalid(path + ": not a regular file");
  if (static_cast<std::uint64_t>(st.st_size) > kTensorFileMaxBytes)
    return invalid(path + ": " + std::to_string(st.st_size) + " bytes, at most " +
                   std::to_string(kTensorFileMaxBytes) + " are allowed");
  std::string bytes(static_cast<std::size_t>(st.st_size), '\0');
  std::size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = ::read(file.get(), bytes.data() + got, bytes.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error::from_errno(errno, "read " + path);
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  bytes.resize(got);
  auto decoded = decode_tensor_file(bytes);
  if (!decoded) return std::move(decoded).error().context(path);
  return decoded;
}

std::string sha256_hex(std::string_view bytes) {
  std::string out;
  for (const unsigned char byte : sha256(bytes)) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

// --- policies -------------------------------------------------------------------------------------------

namespace {

constexpr std::array<Activation, 3> kActivations = {Activation::Linear, Activation::Relu, Activation::Tanh};
/// A file names its head where it is one of these; else it is deterministic.
constexpr std::array<PolicyHead, 2> kStochasticHeads = {PolicyHead::Gaussian, PolicyHead::Categorical};

void put_network(TensorFile& file, const char* name, const std::vector<DenseLayer>& layers) {
  json described = json::array();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const DenseLayer& layer = layers[i];
    const std::string prefix = std::string(name) + "/" + std::to_string(i);
    described.push_back({{"activation", to_string(layer.activation)}, {"layer_norm", layer.layer_norm}});
    file.tensors.push_back({prefix + "/weights", {layer.outputs, layer.inputs}, layer.weights});
    file.tensors.push_back({prefix + "/bias", {layer.outputs}, layer.bias});
  }
  file.meta[name] = std::move(described);
}

/// Reads a policy's meta and remembers the first thing that is wrong; all its getters then return defaults.
class Meta {
 public:
  Meta(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  float number(const char* key) {
    const json& value = entry(object_, key);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (std::abs(number) <= std::numeric_limits<float>::max()) return static_cast<float>(number);
    return fail<float>(key, "not a number");
  }
  std::uint64_t natural(const char* key) {
    const json& value = entry(object_, key);
    if (value.is_number_unsigned()) return value.get<std::uint64_t>();
    return fail<std::uint64_t>(key, "not a whole number");
  }
  std::int64_t integer(const char* key) {
    const json& value = entry(object_, key);
    if (value.is_number_integer() && !(value.is_number_unsigned() &&
                                       value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()))
      return value.get<std::int64_t>();
    return fail<std::int64_t>(key, "not a whole number");
  }
  bool boolean(const char* key) {
    const json& value = entry(object_, key);
    if (value.is_boolean()) return value.get<bool>();
    return fail<bool>(key, "neither true nor false");
  }
  /// For logs, the bus and terminals: no control characters.
  std::string text(const char* key) {
    const json& value = entry(object_, key);
    if (!value.is_string()) return fail<std::string>(key, "not a text");
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > kMaxName) return fail<std::string>(key, "longer than 256 bytes");
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
        return fail<std::string>(key, "has a control character");
    return text;
  }
  template <class All>
  auto one_of(const char* key, const All& all) {
    using E = std::remove_cvref_t<decltype(*std::begin(all))>;
    const json& value = entry(object_, key);
    if (value.is_string())
      for (const E e : all)
        if (value.get_ref<const std::string&>() == to_string(e)) return e;
    return fail<E>(key, "not a name that is known");
  }
  Meta part(const char* key) { return {entry(object_, key), where_ + key + "."}; }

  Result<void> verdict() const {
    if (wrong_.empty()) return {};
    return invalid(wrong_);
  }

 private:
  template <class T>
  T fail(const char* key, const char* what) {
    if (wrong_.empty()) wrong_ = where_ + key + ": " + what;
    return T{};
  }
  const json& object_;
  std::string where_;
  std::string wrong_;
};

/// Takes arrays out of the file by name and counts them, so that what is left over can be refused.
class Arrays {
 public:
  explicit Arrays(const TensorFile& file) : file_(file) {}
  Result<const Tensor*> take(const std::string& name, std::size_t rank) {
    const Tensor* tensor = file_.find(name);
    if (!tensor) return invalid("array '" + name + "' is missing");
    if (tensor->shape.size() != rank)
      return invalid("array '" + name + "' has " + std::to_string(tensor->shape.size()) +
                     " dimensions, not " + std::to_string(rank));
    taken_.insert(name);
    return tensor;
  }
  Result<void> all_taken() const {
    for (const Tensor& tensor : file_.tensors)
      if (!taken_.contains(tensor.name)) return invalid("array '" + tensor.name + "' is no part of a policy");
    return {};
  }

 private:
  const TensorFile& file_;
  std::unordered_set<std::string> taken_;
};

Result<std::vector<DenseLayer>> take_network(const json& meta, const char* name, Arrays& arrays) {
  const json& described = entry(meta, name);
  if (!described.is_array() || described.size() > kMaxPolicyLayers)
    return invalid(std::string("meta.") + name + ": not a list of at most 8 layers");
  std::vector<DenseLayer> layers;
  for (std::size_t i = 0; i < described.size(); ++i) {
    const std::string prefix = std::string(name) + "/" + std::to_string(i);
    if (!described[i].is_object()) return invalid("meta." + prefix + ": not an object");
    FLASH_CHECK(only(described[i], {"activation", "layer_norm"}, "meta." + prefix));
    Meta from(described[i], "meta." + prefix + ".");
    DenseLayer layer;
    layer.activation = from.one_of("activation", kActivations);
    layer.layer_norm = from.boolean("layer_norm");
    FLASH_CHECK(from.verdict());
    FLASH_TRY(const Tensor* weights, arrays.take(prefix + "/weights", 2));
    FLASH_TRY(const Tensor* bias, arrays.take(prefix + "/bias", 1));
    // A file is at most kTensorFileMaxBytes, but a zero elsewhere in the shape leaves a dimension free.
    if (weights->values.empty() || bias->shape[0] != weights->shape[0])
      return invalid("array '" + prefix + "/bias' does not fit its weights");
    layer.outputs = static_cast<int>(weights->shape[0]);
    layer.inputs = static_cast<int>(weights->shape[1]);
    layer.weights = weights->values;
    layer.bias = bias->values;
    layers.push_back(std::move(layer));
  }
  return layers;
}

/// What the file says, or what files meant that do not say it.
Result<std::optional<SpaceLayout>> take_layout(const json& meta, Task task) {
  if (!meta.contains("layout")) {
    auto before = layout_before_named(task);
    if (!before) return invalid("meta.layout: missing, and the task is newer than files without one");
    return before;
  }
  JsonBox box;
  *box = meta["layout"];
  auto layout = layout_from_json(box);
  if (!layout) return invalid("meta." + layout.error().message());
  if (layout->task != task) return invalid("meta.layout: is of another task than the policy");
  return std::optional<SpaceLayout>(*std::move(layout));
}

}  // namespace

TensorFile to_tensor_file(const PolicySnapshot& policy) {
  TensorFile file;
  file.kind = "policy";
  *file.meta = {
      {"task", to_string(policy.task)},
      {"version", policy.version},
      {"model", policy.model},
      {"algorithm", policy.algorithm},
      {"data_steps", policy.data_steps},
      {"expires_ns", policy.expires.time_since_epoch().count()},
      {"value_offset", policy.value_offset},
      {"value_scale", policy.value_scale},
      {"exploration", {{"epsilon", policy.exploration.epsilon}, {"sigma", policy.exploration.sigma}}}};
  if (policy.stay_margin != 0) file.meta["stay_margin"] = policy.stay_margin;
  if (policy.layout) file.meta["layout"] = *layout_to_json(*policy.layout);
  if (policy.head != PolicyHead::Deterministic) file.meta["head"] = to_string(policy.head);
  if (const OffPolicyEstimate& e = policy.estimate; e.given)
    file.meta["estimate"] = {{"method", e.method}, {"learned", e.learned}, {"fallback", e.fallback},
                             {"lower", e.lower},   {"upper", e.upper},     {"transitions", e.transitions}};
  const auto vector = [&file](const char* name, const std::vector<float>& values) {
    file.tensors.push_back({name, {static_cast<std::int64_t>(values.size())}, values});
  };
  vector("mean", policy.mean);
  vector("scale", policy.scale);
  vector("embedding", policy.embedding);
  put_network(file, "actor", policy.actor);
  put_network(file, "critic", policy.critic);
  if (policy.head == PolicyHead::Gaussian) vector("log_sigma", policy.log_sigma);
  if (!policy.state_value.empty()) put_network(file, "state_value", policy.state_value);
  return file;
}

Result<PolicySnapshot> to_policy(const TensorFile& file) {
  if (file.kind != "policy") return invalid("kind is '" + file.kind + "', not 'policy'");
  FLASH_CHECK(only(
      *file.meta,
      {"task", "version", "model", "algorithm", "data_steps", "expires_ns", "value_offset", "value_scale",
       "stay_margin", "exploration", "estimate", "head", "layout", "actor", "critic", "state_value"},
      "meta"));
  PolicySnapshot policy;
  Meta meta(*file.meta, "meta.");
  policy.task = meta.one_of("task", known_tasks());
  policy.version = meta.natural("version");
  policy.model = meta.text("model");
  policy.algorithm = meta.text("algorithm");
  policy.data_steps = meta.natural("data_steps");
  policy.expires = WallTime(Duration(meta.integer("expires_ns")));
  policy.value_offset = meta.number("value_offset");
  policy.value_scale = meta.number("value_scale");
  if (file.meta->contains("stay_margin")) policy.stay_margin = meta.number("stay_margin");
  if (file.meta->contains("head")) policy.head = meta.one_of("head", kStochasticHeads);
  FLASH_CHECK(meta.verdict());
  FLASH_TRY(policy.layout, take_layout(*file.meta, policy.task));
  const json& exploration = entry(*file.meta, "exploration");
  if (!exploration.is_object()) return invalid("meta.exploration: not an object");
  FLASH_CHECK(only(exploration, {"epsilon", "sigma"}, "meta.exploration"));
  Meta schedule = meta.part("exploration");
  policy.exploration.epsilon = schedule.number("epsilon");
  policy.exploration.sigma = schedule.number("sigma");
  FLASH_CHECK(schedule.verdict());
  if (const json& estimate = entry(*file.meta, "estimate"); !estimate.is_null()) {
    if (!estimate.is_object()) return invalid("meta.estimate: not an object");
    FLASH_CHECK(
        only(estimate, {"method", "learned", "fallback", "lower", "upper", "transitions"}, "meta.estimate"));
    Meta from = meta.part("estimate");
    OffPolicyEstimate& e = policy.estimate;
    e.given = true;
    e.method = from.text("method");
    e.learned = from.number("learned");
    e.fallback = from.number("fallback");
    e.lower = from.number("lower");
    e.upper = from.number("upper");
    e.transitions = from.natural("transitions");
    FLASH_CHECK(from.verdict());
  }
  Arrays arrays(file);
  for (const auto& [name, to] : {std::pair{"mean", &policy.mean}, std::pair{"scale", &policy.scale},
                                 std::pair{"embedding", &policy.embedding}}) {
    FLASH_TRY(const Tensor* tensor, arrays.take(name, 1));
    *to = tensor->values;
  }
  FLASH_TRY(policy.actor, take_network(*file.meta, "actor", arrays));
  FLASH_TRY(policy.critic, take_network(*file.meta, "critic", arrays));
  if (policy.head == PolicyHead::Gaussian) {
    FLASH_TRY(const Tensor* tensor, arrays.take("log_sigma", 1));
    policy.log_sigma = tensor->values;
  }
  if (file.meta->contains("state_value")) {
    FLASH_TRY(policy.state_value, take_network(*file.meta, "state_value", arrays));
  }
  FLASH_CHECK(arrays.all_taken());
  return policy;
}

}  // namespace flash
