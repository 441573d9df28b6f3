/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/base/hostlist.h"
#include "topology/base/yaml.h"
#include "topology/fabric/build.h"

/* Two YAML descriptions of a fabric:
 * - topology.yaml(5) of Slurm 25.05 on, a list of topologies, of which the
 *   caller may name one; else the one with cluster_default (or else the first)
 *   is taken: a tree (switches with children or nodes), blocks with sizes, or
 *   flat;
 * - a topograph model, where `switches` maps each name to its children and
 *   `blocks` lists which nodes hang from which switch. */

struct reader {
    struct plait_fabric *fabric;
    struct plait_yaml *yaml;
    struct plait_error *err;
    const yaml_node_t *at; /* for errors: the node whose names are read */
    int target;
};

static int hang_switch(void *arg, const char *name)
{
    struct reader *r = arg;
    int child = plait_names_find(&r->fabric->switches, name);
    struct plait_error why;

    if (child < 0)
        return plait_yaml_errorf(r->yaml, r->at, r->err,
                                 "switch %s is not defined", name);
    if (plait_fabric_hang_switch(r->fabric, child, r->target, &why) < 0)
        return plait_yaml_errorf(r->yaml, r->at, r->err, "%s", why.text);
    return 0;
}

static int hang_node(void *arg, const char *name)
{
    struct reader *r = arg;

    if (r->fabric->blocks && plait_names_find(&r->fabric->nodes, name) >= 0)
        return plait_yaml_errorf(r->yaml, r->at, r->err,
                                 "node %s is in two blocks", name);
    return plait_fabric_hang_node(r->fabric, name, r->target, r->err);
}

/* A host list, or a sequence of them. */
static int each_name(struct reader *r, yaml_node_t *value,
                     int (*add)(void *arg, const char *name))
{
    const char *text = plait_yaml_text(value);
    struct plait_error why = {""};

    if (text) {
        r->at = value;
        if (plait_hostlist_each(text, strlen(text), add, r, &why) == 0)
            return 0;
        return why.text[0]
                   ? plait_yaml_errorf(r->yaml, value, r->err, "%s", why.text)
                   : -1;
    }
    if (value->type != YAML_SEQUENCE_NODE)
        return plait_yaml_errorf(r->yaml, value, r->err,
                                 "expected names such as n[1-4]");
    for (int i = 0; i < plait_yaml_count(value); i++) {
        yaml_node_t *item = plait_yaml_item(r->yaml, value, i);

        if (!plait_yaml_text(item))
            return plait_yaml_errorf(r->yaml, item, r->err,
                                     "expected names such as n[1-4]");
        if (each_name(r, item, add) < 0)
            return -1;
    }
    return 0;
}

/* The `key` of entry `i` of a list as text, for example a switch's name. */
static const char *entry_name(struct reader *r, yaml_node_t *list, int i,
                              const char *key, yaml_node_t **entry)
{
    yaml_node_t *item = plait_yaml_item(r->yaml, list, i);
    yaml_node_t *value = plait_yaml_get(r->yaml, item, key);
    const char *text = value ? plait_yaml_text(value) : NULL;

    if (!text || !*text) {
        plait_yaml_errorf(r->yaml, item, r->err, "expected \"%s: NAME\"", key);
        return NULL;
    }
    *entry = item;
    return text;
}

/* Name all switches or blocks first: children may come before parents. */
static int define_switches(struct reader *r, yaml_node_t *list, const char *key)
{
    if (!list || list->type != YAML_SEQUENCE_NODE)
        return plait_yaml_errorf(r->yaml, list, r->err, "expected a list of %s",
                                 key);
    for (int i = 0; i < plait_yaml_count(list); i++) {
        int before = r->fabric->switches.count;
        yaml_node_t *entry;
        const char *name = entry_name(r, list, i, key, &entry);

        if (!name || plait_fabric_add_switch(r->fabric, name, r->err) < 0)
            return -1;
        if (r->fabric->switches.count == before)
            return plait_yaml_errorf(r->yaml, entry, r->err,
                                     "%s %s is defined twice", key, name);
    }
    return 0;
}

static int link_switches(struct reader *r, yaml_node_t *list)
{
    for (int i = 0; i < plait_yaml_count(list); i++) {
        yaml_node_t *entry = plait_yaml_item(r->yaml, list, i);
        yaml_node_t *children = plait_yaml_get(r->yaml, entry, "children");
        yaml_node_t *nodes = plait_yaml_get(r->yaml, entry, "nodes");

        r->target = i;
        if (!children && !nodes)
            return plait_yaml_errorf(r->yaml, entry, r->err,
                                     "neither children nor nodes");
        if ((children && each_name(r, children, hang_switch) < 0) ||
            (nodes && each_name(r, nodes, hang_node) < 0))
            return -1;
    }
    return 0;
}

static int read_tree(struct reader *r, yaml_node_t *tree)
{
    yaml_node_t *list = plait_yaml_get(r->yaml, tree, "switches");

    if (!list)
        return plait_yaml_errorf(r->yaml, tree, r->err,
                                 "a tree needs \"switches\"");
    return define_switches(r, list, "switch") < 0 ? -1 : link_switches(r, list);
}

static int read_sizes(struct reader *r, yaml_node_t *sizes, int nblocks)
{
    long base = 0, before = 0;

    for (int i = 0; i < plait_yaml_count(sizes); i++) {
        yaml_node_t *item = plait_yaml_item(r->yaml, sizes, i);
        const char *text = plait_yaml_text(item);
        char *end;
        long size = text ? strtol(text, &end, 10) : 0;

        if (!base)
            base = size;
        if (!text || *end || size < 1 || size > 1048576 || size <= before ||
            size % base || (size / base & (size / base - 1)))
            return plait_yaml_errorf(r->yaml, item, r->err,
                                     "expected a base size and then growing "
                                     "powers of two of it, as in 4, 8, 16");
        if (size > base &&
            plait_fabric_join_blocks(r->fabric, nblocks, (int)(size / base),
                                     r->err) < 0)
            return -1;
        before = size;
    }
    return 0;
}

static int read_blocks(struct reader *r, yaml_node_t *block)
{
    yaml_node_t *list = plait_yaml_get(r->yaml, block, "blocks");
    yaml_node_t *sizes = plait_yaml_get(r->yaml, block, "block_sizes");

    if (!list)
        return plait_yaml_errorf(r->yaml, block, r->err,
                                 "a block topology needs \"blocks\"");
    r->fabric->blocks = 1;
    if (define_switches(r, list, "block") < 0 || link_switches(r, list) < 0)
        return -1;
    return sizes ? read_sizes(r, sizes, r->fabric->switches.count) : 0;
}

static int read_topology(struct reader *r, yaml_node_t *topology)
{
    yaml_node_t *tree = plait_yaml_get(r->yaml, topology, "tree");
    yaml_node_t *block = plait_yaml_get(r->yaml, topology, "block");

    if (tree)
        return read_tree(r, tree);
    if (block)
        return read_blocks(r, block);
    if (plait_yaml_get(r->yaml, topology, "flat"))
        return 0;
    if (plait_yaml_get(r->yaml, topology, "torus3d") ||
        plait_yaml_get(r->yaml, topology, "ring"))
        return plait_yaml_errorf(r->yaml, topology, r->err,
                                 "a torus or ring has no switches to plan by");
    return plait_yaml_errorf(r->yaml, topology, r->err,
                             "expected a topology of type tree, block or flat");
}

static bool is_default(struct reader *r, yaml_node_t *topology)
{
    yaml_node_t *value = plait_yaml_get(r->yaml, topology, "cluster_default");
    const char *text = value ? plait_yaml_text(value) : NULL;

    return text && (strcmp(text, "true") == 0 || strcmp(text, "yes") == 0);
}

/* The index of the topology that the caller wants; -1 with an error. */
static int choose_topology(struct reader *r, yaml_node_t *root)
{
    struct plait_fabric_wish *wish = r->fabric->wish;
    const char *wanted = wish ? wish->name : NULL;
    int chosen = -1, found = -1;
    char names[160] = "";
    size_t used = 0;

    for (int i = 0; i < plait_yaml_count(root); i++) {
        yaml_node_t *item;
        const char *name = entry_name(r, root, i, "topology", &item);

        if (!name)
            return -1;
        if (chosen < 0 && is_default(r, item))
            chosen = i;
        if (found < 0 && wanted && strcmp(name, wanted) == 0)
            found = i;
        if (used < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     used ? ", " : "", name);
    }
    if (wanted && found < 0)
        return plait_yaml_errorf(r->yaml, root, r->err,
                                 "there is no topology \"%.60s\"; there %s %s",
                                 wanted, strchr(names, ',') ? "are" : "is",
                                 names);
    if (wanted)
        return found;
    return wish && wish->index >= 0 ? wish->index : chosen < 0 ? 0 : chosen;
}

static int read_slurm(struct reader *r, yaml_node_t *root)
{
    int count = plait_yaml_count(root), chosen;
    yaml_node_t *item;
    const char *name;

    if (r->fabric->wish)
        r->fabric->wish->count = count;
    if (count == 0)
        return 0;
    chosen = choose_topology(r, root);
    if (chosen < 0)
        return -1;
    name = entry_name(r, root, chosen, "topology", &item);
    if (count > 1 && !(r->fabric->topology = strdup(name)))
        return plait_errorf(r->err, "out of memory");
    return read_topology(r, item);
}

/* The nodes of a topograph block hang from its switch. */
static int read_model_block(struct reader *r, yaml_node_t *entry)
{
    yaml_node_t *nodes = plait_yaml_get(r->yaml, entry, "nodes");
    yaml_node_t *on = plait_yaml_get(r->yaml, entry, "switch");
    const char *name = on ? plait_yaml_text(on) : NULL;

    if (!name)
        return plait_yaml_errorf(r->yaml, entry, r->err,
                                 "expected \"switch: NAME\"");
    if (!nodes)
        return plait_yaml_errorf(r->yaml, entry, r->err, "expected \"nodes\"");
    r->target = plait_names_find(&r->fabric->switches, name);
    if (r->target < 0)
        return plait_yaml_errorf(r->yaml, on, r->err,
                                 "switch %s is not defined", name);
    return each_name(r, nodes, hang_node);
}

static int read_model(struct reader *r, yaml_node_t *root)
{
    yaml_node_t *switches = plait_yaml_get(r->yaml, root, "switches");
    yaml_node_t *blocks = plait_yaml_get(r->yaml, root, "blocks");

    if (!blocks || blocks->type != YAML_SEQUENCE_NODE)
        return plait_yaml_errorf(r->yaml, root, r->err,
                                 "expected a list of \"blocks\"");
    for (int i = 0; i < plait_yaml_count(blocks); i++) {
        yaml_node_t *on = plait_yaml_get(
            r->yaml, plait_yaml_item(r->yaml, blocks, i), "switch");
        const char *name = on ? plait_yaml_text(on) : NULL;

        if (name && plait_fabric_add_switch(r->fabric, name, r->err) < 0)
            return -1;
    }
    for (int pass = 0; switches && pass < 2; pass++)
        for (int i = 0; i < plait_yaml_count(switches); i++) {
            yaml_node_t *key, *value, *below;

            value = plait_yaml_pair(r->yaml, switches, i, &key);
            if (!plait_yaml_text(key))
                return plait_yaml_errorf(r->yaml, key, r->err,
                                         "expected a switch's name");
            r->target = plait_fabric_add_switch(r->fabric, plait_yaml_text(key),
                                                r->err);
            below = plait_yaml_get(r->yaml, value, "switches");
            if (r->target < 0 ||
                (pass && below && each_name(r, below, hang_switch) < 0))
                return -1;
        }
    for (int i = 0; i < plait_yaml_count(blocks); i++)
        if (read_model_block(r, plait_yaml_item(r->yaml, blocks, i)) < 0)
            return -1;
    return 0;
}

int plait_fabric_read_yaml(struct plait_fabric *fabric, const char *name,
                           const char *text, size_t size,
                           struct plait_error *err)
{
    struct reader r = {.fabric = fabric, .err = err};
    yaml_node_t *root;
    int rc;

    r.yaml = plait_yaml_parse(name, text, size, err);
    if (!r.yaml)
        return -1;
    root = plait_yaml_root(r.yaml);
    if (!root)
        rc = 0;
    else if (root->type == YAML_SEQUENCE_NODE)
        rc = read_slurm(&r, root);
    else if (root->type == YAML_MAPPING_NODE)
        rc = read_model(&r, root);
    else
        rc = plait_yaml_errorf(r.yaml, root, err,
                               "expected a list of topologies");
    plait_yaml_destroy(r.yaml);
    return rc;
}
