#%Module1.0
# SPDX-License-Identifier: Apache-2.0
# Environment Modules: copy it to MODULEPATH/plait/VERSION, once for each
# version that `./configure --prefix=/opt/plait/VERSION` was given; edit
# `prefix` where yours is another.
proc ModulesHelp {} {
    puts stderr "Plait: tensor, pipeline and data parallelism as flags of"
    puts stderr "srun, and a trainer. plait --help, man plait."
}
module-whatis "Plait: planner and trainer for parallel jobs under Slurm"
conflict plait

set prefix /opt/plait/[file tail [module-info name]]
prepend-path PATH $prefix/bin
prepend-path MANPATH $prefix/share/man
prepend-path LD_LIBRARY_PATH $prefix/lib
prepend-path PKG_CONFIG_PATH $prefix/lib/pkgconfig
prepend-path XDG_DATA_DIRS $prefix/share
prepend-path FPATH $prefix/share/zsh/site-functions
