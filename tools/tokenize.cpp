#include <memory>
#include <string>
#include <vector>

#include "commands.hpp"
#include "driftless/error.hpp"
#include "options.hpp"
#include "streams.hpp"

namespace driftless::cli {
namespace {

struct TokenizeCommand {
  std::string model = DRIFTLESS_DEFAULT_MODEL_DIR;
  std::string text;
  std::string ids;
  bool is_plain = false;
  CLI::Option* text_option = nullptr;
  CLI::Option* decode_option = nullptr;

  void run() const {
    const bool decodes = decode_option->count() > 0;
    if (!decodes && text_option->count() == 0)
      throw ArgumentError("expected TEXT, - for standard input, or --decode IDS");
    const Tokenizer tokenizer = Tokenizer::load(model);
    if (decodes) return writeOutput(tokenizer.decode(parseIds("--decode", ids)));
    const auto special = is_plain ? SpecialTokens::plainText : SpecialTokens::parse;
    writeOutput(idsText(tokenizer.encode(text == "-" ? readInput() : text, special)) + "\n");
  }
};

}  // namespace

void addTokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids on one line, or ids into text");
  auto options = std::make_shared<TokenizeCommand>();
  addModel(*command, options->model)->description("A directory with the tokenizer's files");
  options->text_option =
      command->add_option("TEXT", options->text, "- takes standard input, every byte of it")->type_name("");
  command->add_flag("--plain", options->is_plain, "Take <|endoftext|> as ordinary text, not as the special token");
  options->decode_option =
      command
          ->add_option("--decode", options->ids, "Write the bytes of token ids such as 1,2,3; - takes standard input")
          ->type_name("IDS")
          ->excludes(options->text_option);
  command->callback([options] { options->run(); });
}

}  // namespace driftless::cli
