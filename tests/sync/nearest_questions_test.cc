#include "sync/nearest_questions.h"

#include <gmock/gmock.h>

namespace flash::sync {
namespace {

using std::chrono::seconds;
using Heard = NearestQuestions::Heard;

link::Episode some_episode(std::uint64_t number = 1, Stage stage = Stage::Offline) {
  return {
      .agent = "resource-limits:/web", .episode = number, .stage = stage, .model = "m1", .embedding = {1, 2}};
}

coordinator::NearestAnswer answer(std::vector<float> embedding = {3, 4}) {
  link::Neighbour n{.model = "m1", .node = "n2", .agent = "resource-limits:/shop"};
  n.embedding = std::move(embedding);
  return {"resource-limits:/web", n};
}

TEST(NearestQuestions, AnAgentWithAnEmbeddingIsAskedAboutUntilThereIsAnAnswer) {
  NearestQuestions q;
  q.seen(some_episode());
  auto due = q.due(seconds(100));
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0], (link::NearestQuestion{"resource-limits:/web", Task::ResourceLimits, "m1", {1, 2}}));
  EXPECT_TRUE(q.due(seconds(104)).empty());
  EXPECT_EQ(q.due(seconds(105)).size(), 1u);
  EXPECT_TRUE(q.due(seconds(114)).empty());  // twice as long
  EXPECT_EQ(q.due(seconds(115)).size(), 1u);
  EXPECT_EQ(q.waiting(), 1u);
  EXPECT_EQ(q.answered(answer()), Heard::Another);
  EXPECT_EQ(q.waiting(), 0u);
  EXPECT_TRUE(q.due(seconds(10000)).empty());
  q.seen(some_episode(2));
  EXPECT_TRUE(q.due(seconds(20000)).empty());  // its embedding is what it was
}

TEST(NearestQuestions, AnAgentWhoseEmbeddingMovesIsAskedAboutAgain) {
  NearestQuestions q;
  q.seen(some_episode());
  ASSERT_EQ(q.due(seconds(100)).size(), 1u);
  ASSERT_EQ(q.answered(answer()), Heard::Another);
  link::Episode moved = some_episode(2);
  moved.embedding = {5, 6};
  q.seen(moved);
  EXPECT_TRUE(q.due(seconds(104)).empty());  // not sooner than without an answer
  const auto due = q.due(seconds(105));
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].embedding, (std::vector<float>{5, 6}));
  EXPECT_EQ(q.waiting(), 0u);
  EXPECT_EQ(q.answered(answer({7, 8})), Heard::Same);  // of the same agent, which moved as well
  EXPECT_TRUE(q.due(seconds(10000)).empty());
  moved.embedding = {9, 10};
  moved.episode = 3;
  q.seen(moved);
  ASSERT_EQ(q.due(seconds(10000)).size(), 1u);
  auto other = answer();
  other.neighbour->agent = "resource-limits:/cart";
  EXPECT_EQ(q.answered(other), Heard::Another);
  seconds at(10000), last = at;
  int asked = 0;
  for (std::uint64_t episode = 4; at < seconds(60000);
       at += seconds(100)) {  // ever more seldom, at least hourly
    moved.episode = episode++;
    moved.embedding[0] += 1;
    q.seen(moved);
    if (q.due(at).empty()) continue;
    EXPECT_LE(at - last, seconds(3700));
    last = at;
    ++asked;
    EXPECT_EQ(q.answered(other), Heard::Same);
  }
  EXPECT_LT(asked, 25);
  EXPECT_GT(last, seconds(56000));
}

TEST(NearestQuestions, NobodyIsAskedAboutWhoServesOrHasNoEmbedding) {
  NearestQuestions q;
  q.seen(some_episode(1, Stage::Serving));
  link::Episode none = some_episode();
  none.embedding.clear();
  q.seen(none);
  none = some_episode();
  none.model.clear();
  q.seen(none);
  EXPECT_TRUE(q.due(seconds(100)).empty());
  q.seen(some_episode());
  q.seen(some_episode(2, Stage::Serving));
  EXPECT_TRUE(q.due(seconds(100)).empty());
}

TEST(NearestQuestions, WhatNobodyAskedForOrDoesNotFitIsNoAnswer) {
  NearestQuestions q;
  EXPECT_EQ(q.answered(answer()), Heard::Unasked);
  q.seen(some_episode());
  EXPECT_EQ(q.answered(answer()), Heard::Unasked);  // not asked yet
  q.due(seconds(100));
  EXPECT_EQ(q.answered(answer({1, 2, 3})), Heard::Unasked);
  auto other = answer();
  other.neighbour->model = "m2";
  EXPECT_EQ(q.answered(other), Heard::Unasked);
  other = answer();
  other.neighbour->task = Task::CpuFrequency;
  EXPECT_EQ(q.answered(other), Heard::Unasked);
  EXPECT_EQ(q.answered({"resource-limits:/web", std::nullopt}),
            Heard::Nobody);  // nobody is known yet: asked again
  EXPECT_EQ(q.due(seconds(105)).size(), 1u);
  EXPECT_EQ(q.answered(answer()), Heard::Another);
  EXPECT_EQ(q.answered(answer()), Heard::Unasked);  // once
}

TEST(NearestQuestions, AnotherModelOrLifeIsAskedAboutAgain) {
  NearestQuestions q;
  q.seen(some_episode(5));
  q.due(seconds(100));
  ASSERT_EQ(q.answered(answer()), Heard::Another);
  link::Episode other = some_episode(6);
  other.model = "m2";
  q.seen(other);
  EXPECT_EQ(q.due(seconds(101)).at(0).model, "m2");
  ASSERT_FALSE(q.due(seconds(101)).size());
  auto second = answer();
  second.neighbour->model = "m2";
  ASSERT_EQ(q.answered(second), Heard::Another);
  other.episode = 1;  // its numbers begin again: flashd has forgotten
  q.seen(other);
  EXPECT_EQ(q.due(seconds(102)).size(), 1u);
}

TEST(NearestQuestions, AreBoundedInNumberAndPerRound) {
  NearestQuestions q({.agents = 20, .per_round = 16});
  for (int i = 0; i < 30; ++i) {
    link::Episode e = some_episode();
    e.agent += std::to_string(i);
    q.seen(e);
  }
  EXPECT_EQ(q.waiting(), 20u);
  EXPECT_EQ(q.due(seconds(100)).size(), 16u);
  EXPECT_EQ(q.due(seconds(100)).size(), 4u);
}

}  // namespace
}  // namespace flash::sync
