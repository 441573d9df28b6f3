/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tap.h"
#include "topology/start/options.h"

static struct plait_error err;

static int take(struct plait_options *options, enum plait_option option,
                const char *value)
{
    err.text[0] = '\0';
    return plait_options_set(options, option, value, &err);
}

static void test_bad_values(void)
{
    static const char *const bad[] = {"0",           "-1",  "abc", "4x",
                                      "99999999999", "",    " 2",  "2 ",
                                      "+2",          "0x2", "1e3", "1.5"};
    struct plait_options options, before;

    plait_options_init(&options);
    before = options;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ok(take(&options, (enum plait_option)PLAIT_TP, bad[i]) < 0 &&
               strncmp(err.text, "--tp=", 5) == 0 &&
               strstr(err.text, "must be a whole number"),
           "--tp='%s' is refused: %s", bad[i], err.text);
    }
    ok(take(&options, PLAIT_OPTION_ORDER, "tp-cp-ep-dp") < 0, "short order");
    ok(take(&options, PLAIT_OPTION_PLACEMENT, "Linear") < 0, "placement: %s",
       err.text);
    ok(take(&options, PLAIT_OPTION_PIN, "") < 0, "pin: %s", err.text);
    ok(take(&options, PLAIT_OPTION_RENDEZVOUS, "mpi") < 0, "rendezvous: %s",
       err.text);
    ok(take(&options, (enum plait_option)PLAIT_TP, NULL) < 0, "no value: %s",
       err.text);
    ok(take(&options, PLAIT_NOPTIONS, "1") < 0, "unknown option");
    ok(memcmp(&options, &before, sizeof(options)) == 0,
       "what is refused changes nothing");
}

static void test_good_values(void)
{
    struct plait_options options;

    plait_options_init(&options);
    ok(!options.given && options.pin && options.rendezvous &&
           options.placement == PLAIT_PLACE_TOPOLOGY,
       "the defaults");
    ok(take(&options, (enum plait_option)PLAIT_TP, "4") == 0 &&
           take(&options, (enum plait_option)PLAIT_TP, "8") == 0 &&
           options.layout.size[PLAIT_TP] == 8,
       "the last value wins");
    ok(take(&options, PLAIT_OPTION_ORDER, "pp-dp-ep-cp-tp") == 0 &&
           options.layout.order[0] == PLAIT_PP,
       "an order");
    ok(take(&options, PLAIT_OPTION_PLACEMENT, "linear") == 0 &&
           options.placement == PLAIT_PLACE_LINEAR,
       "linear placement");
    ok(take(&options, PLAIT_OPTION_PIN, "none") == 0 && !options.pin,
       "no pinning");
    ok(take(&options, PLAIT_OPTION_RENDEZVOUS, "none") == 0 &&
           !options.rendezvous,
       "no rendezvous");
    ok(take(&options, PLAIT_OPTION_SHOW_PLAN, NULL) == 0 && options.show_plan,
       "show the plan");
    ok(take(&options, PLAIT_OPTION_PREFLIGHT, NULL) == 0 && options.preflight,
       "a preflight");
    plait_options_init(&options);
    ok(take(&options, PLAIT_OPTION_SPARES, "2") == 0 && options.spares == 2 &&
           options.preflight,
       "spares, which take a preflight to be chosen");
    ok(take(&options, PLAIT_OPTION_SPARES, "0") == 0 && options.spares == 0,
       "none after all");
}

/* The sizes given, as tp cp dp pp with 0 for one that is left out, and which
 * axis is to be inferred. */
static void infers(const int given[4], int axis)
{
    static const int axes[] = {PLAIT_TP, PLAIT_CP, PLAIT_DP, PLAIT_PP};
    struct plait_options options;
    struct plait_layout layout;
    int right = 1;
    char text[16];

    plait_options_init(&options);
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof(text), "%d", given[i]);
        if (given[i])
            take(&options, (enum plait_option)axes[i], text);
    }
    plait_options_layout(&options, &layout);
    for (int i = 0; i < 4; i++) {
        int want = axes[i] == axis ? PLAIT_AUTO : given[i] ? given[i] : 1;

        right &= layout.size[axes[i]] == want;
    }
    ok(right, "tp=%d cp=%d dp=%d pp=%d: %s is inferred", given[0], given[1],
       given[2], given[3], axis < 0 ? "nothing" : plait_axis_names[axis]);
}

static void test_help(void)
{
    for (int i = 0; i < PLAIT_NOPTIONS; i++)
        ok(strlen(plait_option_texts[i].help) <= 75,
           "--%s: Slurm shows all of its help", plait_option_texts[i].name);
}

int main(void)
{
    struct plait_options options;
    struct plait_layout layout;

    test_bad_values();
    test_good_values();
    infers((const int[]){2, 0, 0, 2}, PLAIT_DP);
    infers((const int[]){2, 0, 2, 0}, PLAIT_PP);
    infers((const int[]){0, 0, 2, 2}, PLAIT_CP);
    infers((const int[]){0, 2, 2, 2}, PLAIT_TP);
    infers((const int[]){2, 2, 2, 2}, -1);
    plait_options_init(&options);
    take(&options, (enum plait_option)PLAIT_TP, "auto");
    plait_options_layout(&options, &layout);
    ok(layout.size[PLAIT_TP] == PLAIT_AUTO && layout.size[PLAIT_DP] == 1,
       "an explicit auto is the only one");
    test_help();
    return done_testing();
}
