#pragma once

#include <CLI/CLI.hpp>

/// The subcommands, one file each. Each function declares its command's arguments and what runs it; a run that fails
/// throws, and the program then ends with status 2.
namespace driftless::cli {

void addGenerate(CLI::App& app);
/// Sets `status`, the program's exit status, to 1 where something drifts.
void addVerify(CLI::App& app, int& status);
void addBench(CLI::App& app);
void addTokenize(CLI::App& app);
void addInfo(CLI::App& app);

}  // namespace driftless::cli
