/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "four_gpus.h"
#include "tap.h"
#include "topology/start/binding.h"

static struct plait_error err;

static void test_parse(void)
{
    struct plait_visible v = {.n = 7};
    char big[600] = "", buf[8];

    ok(plait_visible_parse(NULL, &v, &err) == 0 && v.n == 0, "unset is empty");
    ok(plait_visible_parse("", &v, &err) == 0 && v.n == 0, "empty");
    ok(plait_visible_parse("NoDevFiles", &v, &err) == 0 && v.n == 0,
       "NoDevFiles is empty");
    ok(plait_visible_parse("3,0,GPU-8932f937-d72c", &v, &err) == 0 &&
           v.n == 3 && strcmp(v.id[2], "GPU-8932f937-d72c") == 0,
       "numbers and UUIDs");
    ok(plait_visible_parse("0,0", &v, &err) < 0 && v.n == 3, "twice: %s",
       err.text);
    ok(plait_visible_parse("0,,1", &v, &err) < 0, "a hole: %s", err.text);
    ok(plait_visible_parse("0,", &v, &err) < 0, "a comma at the end");
    memset(big, 'x', sizeof(big) - 1);
    ok(plait_visible_parse(big, &v, &err) < 0, "too long: %s", err.text);
    big[0] = '\0';
    for (int i = 0; i < 65; i++)
        snprintf(big + strlen(big), sizeof(big) - strlen(big), "%s%d",
                 i ? "," : "", i);
    ok(plait_visible_parse(big, &v, &err) < 0, "too many: %s", err.text);
    plait_visible_parse("0,1,2,3", &v, &err);
    ok(plait_visible_format(&v, (const int[]){2, 0, 3, 1}, buf, 8) == 0 &&
           strcmp(buf, "2,0,3,1") == 0,
       "formats in another order");
    ok(plait_visible_format(&v, (const int[]){2, 0, 3, 1}, buf, 7) < 0,
       "does not overrun");
}

static void match(const struct plait_node *node, const char *visible,
                  const char *step, const char *want)
{
    struct plait_visible v, s;
    int index[PLAIT_VISIBLE_MOST], rc;
    char got[64] = "";

    plait_visible_parse(visible, &v, &err);
    plait_visible_parse(step, &s, &err);
    rc = plait_visible_match(&v, &s, node, index, &err);
    for (int i = 0; rc == 0 && i < v.n; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%d",
                 i ? "," : "", index[i]);
    if (rc < 0)
        strcpy(got, "none");
    ok(strcmp(got, want) == 0, "visible %s of step %s: %s", visible, step, got);
}

static void test_match(const struct plait_node *node)
{
    match(node, "0,1,2,3", "0,1,2,3", "0,1,2,3");
    match(node, "2,3", "2,3", "2,3");
    match(node, "0,1", "2,3", "2,3"); /* device cgroups */
    match(node, "1", "3,2", "3");
    match(node, "1,0", "3,1", "3,1");
    match(node, "3,0", "0,3", "3,0");
    match(node, "9", "9", "none");
    match(node, "0,1", "7,8", "none");
    match(node, "4", "2,3", "none");
    match(node, "GPU-1", "0", "none");
    match(node, "0,1", "0,x", "none");
    match(node, "1,01", "0,1", "none");
}

static void test_seats(const struct plait_node *node)
{
    struct plait_visible v, s, none = {0};
    struct plait_launch launch = {0};
    struct plait_binding binding;
    char text[64];

    plait_visible_parse("0,1,2,3", &v, &err);
    plait_visible_parse("4,5,6,7", &s, &err);
    plait_binding_fill(&binding, &v, &v, node, 2, &err);
    plait_visible_format(&binding.visible, binding.permuted, text,
                         sizeof(text));
    ok(binding.known && strcmp(text, "0,2,1,3") == 0,
       "pairs of tasks get linked GPUs: %s", text);
    plait_binding_describe(&binding, node, 1, &launch);
    ok(launch.gpu == 2 && strcmp(launch.gpu_busid, "0000:30:00.0") == 0,
       "task 1 has GPU %d at %s", launch.gpu, launch.gpu_busid);
    plait_binding_fill(&binding, &v, &s, node, 2, &err);
    plait_visible_format(&binding.visible, binding.permuted, text,
                         sizeof(text));
    ok(!binding.known && strcmp(text, "0,1,2,3") == 0,
       "GPUs that hwloc does not see stay in order");
    plait_binding_fill(&binding, &v, &none, node, 2, &err);
    ok(!binding.known, "the user's own list stays");
    plait_binding_fill(&binding, &none, &none, node, 2, &err);
    plait_binding_describe(&binding, node, 0, &launch);
    ok(launch.gpu == -1, "no GPU");
}

static void test_masks(void)
{
    static const char *const bad[] = {"",     "3",   "0x",      "0x3,",
                                      ",0x3", "0xg", "0x3 0x4", "-0x1"};
    hwloc_bitmap_t set = hwloc_bitmap_alloc();

    ok(plait_binding_parse_masks("0x3,0xc", set) == 0 &&
           hwloc_bitmap_weight(set) == 4 && hwloc_bitmap_last(set) == 3,
       "masks are joined");
    ok(plait_binding_parse_masks("0x10000000000000000000000000000000001",
                                 set) == 0 &&
           hwloc_bitmap_last(set) == 136 && hwloc_bitmap_first(set) == 0,
       "more than 128 cores: %d", hwloc_bitmap_last(set));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ok(plait_binding_parse_masks(bad[i], set) < 0 &&
               hwloc_bitmap_weight(set) == 2,
           "'%s' is no list of masks", bad[i]);
    hwloc_bitmap_free(set);
}

int main(void)
{
    struct plait_node *node = four_gpus();

    test_parse();
    if (!ok(node && node->ngpus == 4, "a node with four GPUs"))
        return done_testing();
    test_match(node);
    test_seats(node);
    test_masks();
    plait_node_destroy(node);
    return done_testing();
}
