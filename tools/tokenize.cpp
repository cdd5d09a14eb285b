#include "commands.hpp"
#include "driftless/error.hpp"
#include "prompts.hpp"
#include "streams.hpp"

namespace driftless::cli {

void TokenizeCommand::run() const {
  if (!ids && !text) throw ArgumentError("expected TEXT, - for standard input, or --decode IDS");
  const Tokenizer tokenizer = Tokenizer::load(model);
  if (ids) return writeOutput(tokenizer.decode(readIds("--decode", *ids)));
  const auto special = is_plain ? SpecialTokens::plainText : SpecialTokens::parse;
  writeOutput(idsText(tokenizer.encode(*text == "-" ? readInput() : *text, special)) + "\n");
}

}  // namespace driftless::cli
