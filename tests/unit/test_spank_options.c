/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "tap.h"
#include "topology/start/options.h"
#include "topology/start/plugstack.h"

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
    ok(take(&options, PLAIT_OPTION_ORDER, "tp-cp-ep-tp") < 0, "an axis twice");
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
    struct plait_options options, report;

    plait_options_init(&options);
    plait_options_init(&report);
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
    ok(take(&report, PLAIT_OPTION_REPORT, "r.json") == 0 && report.preflight &&
           strcmp(report.report, "r.json") == 0 &&
           take(&report, PLAIT_OPTION_SPARES, "0") == 0 && report.preflight &&
           take(&report, PLAIT_OPTION_REPORT, "") < 0,
       "its report, which asks for one");
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

/* ---- the arguments of plugstack.conf ---- */

static char complaints[1024];

static void add_complaint(void *arg, const char *text)
{
    size_t used = strlen(complaints);

    (void)arg;
    snprintf(complaints + used, sizeof(complaints) - used, "%s; ", text);
}

/* What is forced holds for every flag that takes a value. */
static void test_forced(void)
{
    static char model[] = "force-model=/theirs", spares[] = "force-spares=1",
                order[] = "force-rank-order=auto";
    static const struct {
        char *argument;
        enum plait_option option;
        const char *other;
    } forced[] = {{model, PLAIT_OPTION_MODEL, "/mine"},
                  {spares, PLAIT_OPTION_SPARES, "2"},
                  {order, PLAIT_OPTION_ORDER, "tp-cp-ep-dp-pp"}};
    struct plait_plugstack plugstack;
    struct plait_options options;

    for (size_t i = 0; i < sizeof(forced) / sizeof(forced[0]); i++) {
        char *argv[] = {forced[i].argument};

        plait_plugstack_parse(&plugstack, 1, argv, add_complaint, NULL);
        plait_options_init(&options);
        plait_options_set(&options, forced[i].option, forced[i].other, &err);
        err.text[0] = '\0';
        ok(plait_plugstack_apply(&plugstack, &options, &err) < 0 &&
               strstr(err.text, "this cluster allows only"),
           "%s: %s", forced[i].argument, err.text);
    }
}

static void test_arguments(void)
{
    static char tp[] = "tp=2", pin[] = "force-pin=none", bogus[] = "bogus=1",
                bad[] = "pp=0", site[] = "site=here", cache[] = "cache=/c",
                seconds[] = "discovery-seconds=7",
                never[] = "discovery-seconds=0", hang[] = "on-hang=unpinned",
                what[] = "on-hang=what", preflight[] = "preflight=yes",
                maybe[] = "preflight=maybe", force[] = "force-pin=non",
                word[] = "force-pim=none";
    char *argv[] = {tp,    pin,  bogus,   bad,       cache,
                    never, hang, seconds, preflight, maybe};
    char *wrong[] = {what}, *limits[][1] = {{site}, {force}, {word}};
    struct plait_plugstack plugstack;
    struct plait_options options;

    plait_plugstack_parse(&plugstack, 10, argv, add_complaint, NULL);
    ok(strcmp(complaints,
              "'bogus=1' is not an argument of this plugin; see "
              "plait-plugstack(5); "
              "--pp=0 must be a whole number from 1 to 1048576, or \"auto\"; "
              "'discovery-seconds=0': must be a whole number from 1 to 3600; "
              "'preflight=maybe': must be yes or no; ") == 0,
       "what is not understood is told: %s", complaints);
    ok(strcmp(plugstack.cache, "/c") == 0 && !plugstack.site,
       "the rest counts");
    ok(plugstack.discovery_seconds == 7 && plugstack.unpinned,
       "discovery's time, and what is done when it is over");
    plait_options_init(&options);
    take(&options, PLAIT_OPTION_SPARES, "1");
    ok(options.preflight, "spare nodes imply a preflight");
    take(&options, PLAIT_OPTION_SPARES, "0");
    ok(!options.preflight, "which a later --spares=0 takes back");
    take(&options, PLAIT_OPTION_PREFLIGHT, NULL);
    take(&options, PLAIT_OPTION_SPARES, "0");
    ok(options.preflight, "but not one that was asked for");
    plait_options_init(&options);
    plait_options_set(&options, PLAIT_OPTION_SHOW_PLAN, NULL, &err);
    ok(plait_plugstack_apply(&plugstack, &options, &err) == 0 &&
           options.layout.size[PLAIT_TP] == 2 && !options.pin,
       "defaults");
    plait_options_init(&options);
    plait_options_set(&options, (enum plait_option)PLAIT_TP, "4", &err);
    ok(plait_plugstack_apply(&plugstack, &options, &err) == 0 &&
           options.layout.size[PLAIT_TP] == 4,
       "the user's flag wins over a default");
    plait_options_set(&options, PLAIT_OPTION_PIN, "none", &err);
    ok(plait_plugstack_apply(&plugstack, &options, &err) == 0,
       "what is forced may be given");
    plait_options_set(&options, PLAIT_OPTION_PIN, "closest", &err);
    ok(plait_plugstack_apply(&plugstack, &options, &err) < 0 &&
           strstr(err.text, "only --pin=none"),
       "and nothing else: %s", err.text);
    options.measure_only = 1;
    ok(plait_plugstack_apply(&plugstack, &options, &err) == 0 && options.pin,
       "but in the preflight of --node-spares");
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        plait_options_init(&options);
        plait_plugstack_parse(&plugstack, 1, limits[i], add_complaint, NULL);
        ok(plait_plugstack_apply(&plugstack, &options, &err) < 0 &&
               strstr(err.text, "no planned step can start until"),
           "a limit that is wrong refuses all: %s", err.text);
    }
    complaints[0] = '\0';
    plait_plugstack_parse(&plugstack, 1, wrong, add_complaint, NULL);
    ok(strcmp(complaints, "'on-hang=what': must be refuse or unpinned; ") == 0,
       "a choice that is none: %s", complaints);
    plait_plugstack_parse(&plugstack, 0, NULL, add_complaint, NULL);
    ok(plugstack.discovery_seconds == 10 && !plugstack.unpinned,
       "ten seconds, and then the step is refused");
}

/* An error about the sizes of a step in a job with --pp=2, --dp=8, on a site
 * with cp=4. */
static void owners_are(unsigned named, const char *error, const char *want)
{
    const unsigned job = 1u << PLAIT_TP | 1u << PLAIT_PP | 1u << PLAIT_DP;
    struct plait_options options;

    plait_options_init(&options);
    take(&options, (enum plait_option)PLAIT_TP, "2");
    take(&options, (enum plait_option)PLAIT_DP, "8");
    take(&options, (enum plait_option)PLAIT_PP, "2");
    take(&options, (enum plait_option)PLAIT_CP, "4");
    snprintf(err.text, sizeof(err.text), "%s", error);
    plait_options_name_owners(&options, named, job & ~named, &err);
    ok(strncmp(err.text, error, strlen(error)) == 0 &&
           strcmp(err.text + strlen(error), want) == 0,
       "whose sizes: %s", err.text);
}

static void test_owners(void)
{
    const unsigned tp = 1u << PLAIT_TP, pp = 1u << PLAIT_PP,
                   cp = 1u << PLAIT_CP;
    static const char all[] = "3 tasks are not divisible by --tp=2 --cp=4 "
                              "--pp=2";

    owners_are(tp | pp | cp, all, "");
    owners_are(tp | cp, all, " (--pp=2 is the job's: --pp=1 takes it back)");
    owners_are(tp | pp, all, " (--cp=4 is the site's)");
    owners_are(0, all,
               " (--tp=2 is the job's: --tp=1 takes it back; --cp=4 is the "
               "site's; --pp=2 is the job's: --pp=1 takes it back)");
    owners_are(tp, "--tp=2 --dp=8 does not make 8 tasks",
               " (--dp=8 is the job's: --dp=auto takes it back)");
    owners_are(tp, "--placement=x: must be topology or linear", "");
    owners_are(tp, "--pp=20 --cp=40 would fit", "");
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
    test_arguments();
    test_forced();
    test_owners();
    return done_testing();
}
