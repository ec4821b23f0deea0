#include "host/process_place.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

namespace flash::process_place_test {
namespace {

using testing::ElementsAre;

TEST(ProcessCgroups, OfEachHierarchy) {
  const auto v1 = parse_process_cgroups("4:cpu,cpuacct:/a:b\n1:name=systemd:/a/x.service\n0::/\n");
  ASSERT_TRUE(v1) << v1.error().message();
  EXPECT_THAT(*v1, ElementsAre(ProcessCgroup{{"cpu", "cpuacct"}, "/a:b"},
                               ProcessCgroup{{"name=systemd"}, "/a/x.service"}, ProcessCgroup{{}, "/"}));
  const auto outside = parse_process_cgroups("0::/../x\n");
  ASSERT_TRUE(outside);
  EXPECT_EQ(outside->at(0).path, "/../x");
}

TEST(ProcessCgroups, WhatNoKernelWrites) {
  for (const char* text : {"", "\n", "0:/a\n", "x::/a\n", "0::a\n", "0::\n", "3:cpu,,memory:/a\n", "3:cpu\n"})
    EXPECT_FALSE(parse_process_cgroups(text)) << text;
}

TEST(PidNamespaces, AreCounted) {
  EXPECT_EQ(*parse_pid_namespaces("Name:\tx\nNSpid:\t712\n"), 1);
  EXPECT_EQ(*parse_pid_namespaces("NSpid:\t712\t1\nNSpgid:\t1\n"), 2);
  EXPECT_EQ(*parse_pid_namespaces("Name:\tx\n"), 1) << "a kernel without them";
  EXPECT_FALSE(parse_pid_namespaces("NSpid:\n"));
  EXPECT_FALSE(parse_pid_namespaces("NSpid:\tx\n"));
}

TEST(ProcessPlaceOf, ThisProcessAndOneThatEnded) {
  const auto here = process_place(::getpid(), Fd());
  ASSERT_TRUE(here) << here.error().message();
  EXPECT_GE(here->pid_namespaces, 1);
  EXPECT_FALSE(here->cgroups.empty());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  const auto gone = process_place(child, Fd());
  ASSERT_FALSE(gone);
  EXPECT_TRUE(gone.error().is(std::errc::no_such_process)) << gone.error().message();
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(process_place(child, Fd()));
}

}  // namespace
}  // namespace flash::process_place_test
