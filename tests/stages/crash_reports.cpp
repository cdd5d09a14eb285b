#include <doctest/doctest.h>

#include <ostream>

namespace {

/// doctest shows what was logged with a failure or an exception, but not with a crash. This adds it: the hint, the case
/// and the position.
class CrashReports : public doctest::IReporter {
 public:
  explicit CrashReports(const doctest::ContextOptions& options) : out_(*options.cout) {}

  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if ((stats.failure_flags & doctest::TestCaseFailureReason::Crash) == 0) return;
    for (int i = 0; i < get_num_active_contexts(); ++i) {
      out_ << (i == 0 ? "  logged: " : "          ");
      get_active_contexts()[i]->stringify(&out_);
      out_ << '\n';
    }
    out_.flush();
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  std::ostream& out_;
};

REGISTER_LISTENER("crashes", 1, CrashReports);

}  // namespace
