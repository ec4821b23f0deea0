#include "core/command_line.h"

#include <syslog.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace flash {

namespace {

UsageError not_in_range(std::string_view text, const std::string& low, const std::string& high) {
  return {"'" + std::string(text) + "' is not a number from " + low + " to " + high};
}

std::optional<std::uint64_t> whole_number(std::string_view text) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (const auto value = parse_integer(text)) {
    return value;
  }
  const auto real = parse_real(text);
  return real && *real >= 0 && *real <= kExact && *real == std::floor(*real)
             ? std::optional(static_cast<std::uint64_t>(*real))
             : std::nullopt;
}

}  // namespace

std::string number_text(double value) {
  char text[350];  // the largest double has 309 digits
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr;
  return {text, end};
}

std::optional<double> parse_real(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    return std::nullopt;
  }
  text = text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
  if (text.front() == '+') {
    text.remove_prefix(1);
    if (text.starts_with('-')) {
      return std::nullopt;
    }
  }
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::general);
  if (end != text.data() + text.size()) {
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range && text.find_first_of("eE") != std::string_view::npos &&
      text.find('-', 1) != std::string_view::npos) {
    return 0.0;  // "1e-400": nearer to 0 than to any other double
  }
  return error == std::errc{} && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<std::uint64_t> parse_integer(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

Applied apply_options(std::span<const OptionRow> rows, std::span<const std::string_view> args) {
  const auto help =
      std::find_if(rows.begin(), rows.end(), [](const OptionRow& r) { return r.name == "--help"; });
  const bool asked =
      std::any_of(args.begin(), args.end(), [](std::string_view a) { return a == "--help" || a == "-h"; });
  if (asked && help != rows.end()) return help->apply("");
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string_view name = args[i];
    std::optional<std::string_view> value;
    if (const auto equals = name.find('='); name.starts_with("--") && equals != std::string_view::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    const bool alone = !name.starts_with("--");
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const OptionRow& r) {
      return alone ? !r.name.starts_with("--") : r.name == name;
    });
    if (alone && row != rows.end()) {
      value = name;
    }
    if (row == rows.end()) {
      return UsageError{"unknown option '" + std::string(name) + "'"};
    }
    if (alone) {
      // its value is itself
    } else if (row->value.empty()) {
      if (value) {
        return UsageError{std::string(name) + " takes no value"};
      }
      value = "";
    } else if (!value) {
      if (i + 1 == args.size()) {
        return UsageError{std::string(name) + " needs a value (" + std::string(row->value) + ")"};
      }
      value = args[++i];
    }
    if (auto error = row->apply(*value)) {
      return UsageError{std::string(row->name) + ": " + error->message};
    }
  }
  return std::nullopt;
}

std::vector<std::string_view> words_of(int argc, const char* const* argv) {
  return {argv + std::min(argc, 1), argv + argc};
}

std::string describe_options(std::span<const OptionRow> rows) {
  const auto left_side = [](const OptionRow& row) {
    return "  " + std::string(row.name) + (row.value.empty() ? "" : " " + std::string(row.value));
  };
  std::size_t width = 0;
  for (const auto& row : rows) {
    width = std::max(width, left_side(row).size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string left = left_side(row);
    left.resize(width + 2, ' ');
    text += left + std::string(row.help) + "\n";
  }
  return text;
}

std::function<Applied(std::string_view)> integer_into(std::uint64_t& out, std::uint64_t low,
                                                      std::uint64_t high) {
  return [&out, low, high](std::string_view text) -> Applied {
    const auto value = whole_number(text);
    if (!value || *value < low || *value > high) {
      return not_in_range(text, std::to_string(low), std::to_string(high));
    }
    out = *value;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> integer_into(int& out, int low, int high) {
  return [&out, low, high](std::string_view text) -> Applied {
    const auto value = whole_number(text);
    if (!value || *value < static_cast<std::uint64_t>(low) || *value > static_cast<std::uint64_t>(high)) {
      return not_in_range(text, std::to_string(low), std::to_string(high));
    }
    out = static_cast<int>(*value);
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> real_into(double& out, double low, double high) {
  return [&out, low, high](std::string_view text) -> Applied {
    const auto value = parse_real(text);
    if (!value || *value < low || *value > high) {
      return not_in_range(text, number_text(low), number_text(high));
    }
    out = *value;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> text_into(std::string& out) {
  return [&out](std::string_view text) -> Applied {
    if (text.empty()) {
      return UsageError{"is empty"};
    }
    out = text;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> flag_into(bool& out, bool value) {
  return constant_into(out, value);
}

std::function<Applied(std::string_view)> log_level_into(int& out) {
  return [&out](std::string_view text) -> Applied {
    constexpr std::pair<std::string_view, int> kLevels[] = {{"error", LOG_ERR},
                                                            {"warning", LOG_WARNING},
                                                            {"notice", LOG_NOTICE},
                                                            {"info", LOG_INFO},
                                                            {"debug", LOG_DEBUG}};
    for (const auto& [name, level] : kLevels)
      if (name == text) {
        out = level;
        return std::nullopt;
      }
    return UsageError{"'" + std::string(text) + "' is not error, warning, notice, info or debug"};
  };
}

}  // namespace flash
