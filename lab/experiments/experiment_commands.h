// Purpose: the commands of flash-bench that are experiments with simulated lives, and their options.
// Ownership: commands refer to the arguments, which outlive them.
// Thread rule: one thread.
#pragma once

#include <vector>

#include "bench/commands.h"
#include "lab/experiments/bootstrap.h"
#include "lab/experiments/characterize.h"
#include "lab/experiments/predict.h"
#include "lab/experiments/serve.h"

namespace flash::lab {

struct ExperimentArguments {
  BootstrapOptions bootstrap;
  ServeOptions serve;
  CharacterizeOptions characterize;
  PredictOptions predict;
  AmortizeOptions amortize;
  bool json = false;
};

std::vector<bench::Command> experiment_commands(ExperimentArguments& a);

}  // namespace flash::lab
