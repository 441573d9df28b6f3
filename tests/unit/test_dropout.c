/* SPDX-License-Identifier: Apache-2.0 */
/* The random words of dropout: how many are kept, and that elements which
 * differ in one thing only know nothing of each other. */
#include <math.h>

#include "kernels/dropout.h"
#include "tap.h"

enum { ROWS = 1500, COLUMNS = 512 };

/* An element of a model. */
struct element {
    uint64_t key, place;
    int64_t pos;
    uint32_t column;
};

static int is_kept(const struct element *e, float rate)
{
    const struct plait_drops d = {.rate = rate};

    return plait_drop_factor(&d, plait_drop_row(e->key, e->pos, e->place),
                             e->column) > 0;
}

/* Element number i: rows are positions. */
static struct element element_of(int i)
{
    return (struct element){.key = 0x123456789abcdef,
                            .place = (uint64_t)3 << 32,
                            .pos = i / COLUMNS,
                            .column = i % COLUMNS};
}

static void test_share(float rate)
{
    double n = (double)ROWS * COLUMNS, kept = 0, bound;
    const struct plait_drops d = {.rate = rate};
    struct element e = element_of(0);

    for (int i = 0; i < ROWS * COLUMNS; i++) {
        e = element_of(i);
        kept += is_kept(&e, rate);
    }
    bound = 4.5 * sqrt(rate * (1 - (double)rate) / n);
    ok(fabs(kept / n - (1 - (double)rate)) <= bound,
       "of a rate of %g %.6f are kept, within %.6f", (double)rate, kept / n,
       bound);
    e = element_of(0);
    while (!is_kept(&e, rate))
        e.column++;
    ok(fabs(plait_drop_factor(&d, plait_drop_row(e.key, e.pos, e.place),
                              e.column) *
                (1 - (double)rate) -
            1) < 1e-6,
       "and multiplied by 1 / (1 - %g)", (double)rate);
}

/* The correlation of each element with the one that differs as `other` does. */
static void test_independence(const char *what, struct element other)
{
    double n = (double)ROWS * COLUMNS, sum = 0, r;

    for (int i = 0; i < ROWS * COLUMNS; i++) {
        struct element a = element_of(i), b = a;

        b.key += other.key;
        b.place += other.place;
        b.pos += other.pos;
        b.column += other.column;
        sum += (is_kept(&a, 0.5f) - 0.5) * (is_kept(&b, 0.5f) - 0.5) * 4;
    }
    r = sum / n;
    ok(fabs(r) <= 4.5 / sqrt(n), "%s: correlation %.5f", what, r);
}

/* How the numbers of kept columns of a row and of kept rows of a column are
 * spread: as those of independent elements are. */
static void test_spread(void)
{
    static int of_row[ROWS], of_column[COLUMNS];
    double rows = 0, columns = 0;

    for (int i = 0; i < ROWS * COLUMNS; i++) {
        struct element e = element_of(i);
        int kept = is_kept(&e, 0.5f);

        of_row[i / COLUMNS] += kept;
        of_column[i % COLUMNS] += kept;
    }
    for (int i = 0; i < ROWS; i++)
        rows += pow(of_row[i] - COLUMNS / 2.0, 2) / (COLUMNS / 4.0);
    for (int i = 0; i < COLUMNS; i++)
        columns += pow(of_column[i] - ROWS / 2.0, 2) / (ROWS / 4.0);
    ok(fabs(rows - ROWS) <= 4.5 * sqrt(2.0 * ROWS), "chi-square of rows %.1f",
       rows);
    ok(fabs(columns - COLUMNS) <= 4.5 * sqrt(2.0 * COLUMNS),
       "chi-square of columns %.1f", columns);
}

int main(void)
{
    test_share(0.1f);
    test_share(0.5f);
    test_share(0.9f);
    test_independence("the next column", (struct element){.column = 1});
    test_independence("a column 16 further", (struct element){.column = 16});
    test_independence("the next position", (struct element){.pos = 1});
    test_independence("the next position and the column before",
                      (struct element){.pos = 1, .column = (uint32_t)-1});
    test_independence("the next head", (struct element){.place = 1});
    test_independence("the next place",
                      (struct element){.place = (uint64_t)1 << 24});
    test_independence("the next layer",
                      (struct element){.place = (uint64_t)1 << 32});
    test_independence("the next key", (struct element){.key = 1});
    test_spread();
    return done_testing();
}
