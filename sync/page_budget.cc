#include "sync/page_budget.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace flash::sync {
namespace {

constexpr std::size_t kStep = 64u << 10;  // what is reserved grows by at least so much

}  // namespace

PageBudget::PageBudget(PageBudgetOptions options) : options_(options) {
  set_pages(1);
}

void PageBudget::set_pages(std::size_t pages) {
  pages_ = std::max<std::size_t>(pages, 1);
  own_ = std::min(options_.own, options_.total / 2 / pages_);
}

/// What such a page takes from the store; never more than there is in all.
std::size_t PageBudget::beyond(std::size_t bytes) const {
  return bytes <= own_ ? 0 : std::min(bytes - own_, store());
}

double PageBudget::had(const Account& page, Duration now) const {
  const double held =
      page.waits || page.reserved == 0 ? 0 : static_cast<double>(page.reserved) * seconds(now - page.since);
  return held + page.had * std::exp2(-seconds(now - page.had_at) / seconds(options_.forgotten));
}

PageBudget::Account* PageBudget::first(Duration now) const {
  const auto at = std::min_element(waiting_.begin(), waiting_.end(), [&](const Account* a, const Account* b) {
    return std::pair(had(*a, now), a->since) < std::pair(had(*b, now), b->since);
  });
  return at == waiting_.end() ? nullptr : *at;
}

void PageBudget::reserve(Duration now, Account& page, std::size_t bytes) {
  if (bytes > 0 && page.reserved == 0) {
    page.since = now;
    holding_.push_back(&page);
  }
  reserved_ += bytes;
  page.reserved += bytes;
}

bool PageBudget::begin(Duration now, Account& page) {
  if (page.waits) return false;
  page.bytes = 0;
  page.heard = now;
  const std::size_t need = beyond(page.expected);
  if (need == 0) return true;
  if (waiting_.empty() && reserved_ + need <= store()) {
    reserve(now, page, need);
    return true;
  }
  page.waits = true;
  page.since = now;
  waiting_.push_back(&page);
  return false;
}

bool PageBudget::grow(Duration now, Account& page, std::size_t bytes) {
  page.heard = now;
  page.bytes = bytes;
  if (bytes <= own_ + page.reserved) return true;
  // Who waits is before who never waited; what is half done is worth more than what has not begun.
  if (waiting_.empty() || page.reserved > 0) {
    const std::size_t least = bytes - own_;
    const std::size_t most = std::max(least, page.longest > own_ ? page.longest - own_ : 0);
    for (const std::size_t want :
         {std::min(most, std::max(least, page.reserved + page.reserved / 2 + kStep)), least})
      if (reserved_ + want - page.reserved <= store()) {
        reserve(now, page, want - page.reserved);
        return true;
      }
  }
  page.expected = std::max(page.expected, std::min(page.longest, 2 * bytes));
  return false;
}

void PageBudget::end(Duration now, Account& page, bool whole) {
  page.had = had(page, now);
  page.had_at = now;
  reserved_ -= page.reserved;
  page.reserved = 0;
  std::erase(holding_, &page);
  // A little more than last time: most pages grow.
  const std::size_t like_this = std::min(page.longest, page.bytes + page.bytes / 8);
  page.expected = whole ? like_this : std::max(page.expected, like_this);
}

PageBudget::Account* PageBudget::next(Duration now) {
  Account* page = first(now);
  if (!page) return nullptr;
  const std::size_t need = beyond(page->expected);
  if (reserved_ + need > store()) return nullptr;
  page->waits = false;
  std::erase(waiting_, page);
  page->bytes = 0;
  page->heard = now;
  reserve(now, *page, need);
  return page;
}

PageBudget::Account* PageBudget::overdue(Duration now) const {
  const Account* page = first(now);
  if (!page || reserved_ + beyond(page->expected) <= store()) return nullptr;
  Account* worst = nullptr;
  const double enough = had(*page, now);
  for (Account* holder : holding_) {
    const bool idle = now - holder->heard >= options_.idle;
    if ((!idle && now - holder->since < options_.turn) || had(*holder, now) <= enough) continue;
    if (!worst || had(*holder, now) > had(*worst, now)) worst = holder;
  }
  return worst;
}

void PageBudget::leave(Account& page) {
  std::erase(waiting_, &page);
  std::erase(holding_, &page);
  reserved_ -= page.reserved;
  page.reserved = 0;
  page.waits = false;
}

}  // namespace flash::sync
