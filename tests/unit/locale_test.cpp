#include <doctest/doctest.h>

#include <clocale>
#include <locale>
#include <string>

#include "driftless/driftless.hpp"
#include "support/checkpoint_writer.hpp"
#include "support/random_models.hpp"
#include "support/temporary_directory.hpp"

using doctest::Contains;
using namespace driftless;
using namespace driftless::test;

namespace {

struct CommaAndDots : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// German numbers for C++ streams and, if the system has that locale, for C; as before at the end.
class German {
 public:
  German() : before_(std::locale::global(std::locale(std::locale(), new CommaAndDots))) {
    if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr)
      MESSAGE("C functions are not tested: there is no de_DE.UTF-8");
  }
  German(const German&) = delete;
  German& operator=(const German&) = delete;
  ~German() {
    std::setlocale(LC_ALL, "C");
    std::locale::global(before_);
  }

 private:
  std::locale before_;
};

}  // namespace

TEST_CASE("locale: numbers in errors are the shortest that read back, whatever the locale") {
  const German german;
  CHECK_THROWS_WITH_AS(checkSampling({.temperature = -0.1}), Contains("got -0.1"), ArgumentError);
  CHECK_THROWS_WITH_AS(checkSampling({.top_p = 1.0000001}), Contains("up to 1, got 1.0000001"), ArgumentError);
  CHECK_THROWS_WITH_AS(checkSampling({.temperature = -1e-300}), Contains("got -1e-300"), ArgumentError);
  CHECK_THROWS_WITH_AS(checkIds({1234567}, oddConfig()), Contains("got 1234567 at index 0"), ArgumentError);
  CHECK_THROWS_WITH_AS(Threads(123456), Contains("got 123456"), ArgumentError);
  Config config = oddConfig();
  config.layer_norm_epsilon = -1e-5;
  CHECK_THROWS_WITH_AS(checkConfig(config), Contains("got -1e-05"), ConfigError);
}

TEST_CASE("locale: numbers in files are read alike, whatever the locale") {
  const German german;
  const TemporaryDirectory directory;
  writeCheckpoint(directory.path(), gpt2Tensors({}), configJson({}, R"("layer_norm_epsilon":0.0125)"));
  CHECK(Checkpoint(directory.path()).config().layer_norm_epsilon == 0.0125);
  writeFile(directory.path() / "config.json", configJson({}, R"("layer_norm_epsilon":1.5e-400)"));
  CHECK_THROWS_WITH_AS(Checkpoint(directory.path()), Contains("expected a positive, finite number, found 0.0"),
                       ConfigError);
}
