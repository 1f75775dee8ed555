# A system on which the demo is built, and the demo. In the folder of this file:
#     docker build --tag colls .
#     docker run --rm --init colls          # as scripts/demo; options follow, such as --ranks 2
# The first stage alone has what is needed to build (docker build --target tools .): .devcontainer uses it.
FROM debian:12 AS tools
COPY scripts/setup /tmp/setup
# git, an editor's servers and the tests' own packages beside what the demo needs.
RUN /tmp/setup && /tmp/setup --demo \
    && apt-get install -y -qq --no-install-recommends ca-certificates git gdb \
    && rm -rf /var/lib/apt/lists/* /tmp/setup

FROM tools AS demo
COPY . /colls
WORKDIR /colls
# Builds the demo, and sees it run.
RUN scripts/demo --ranks 2 --epochs 1
ENTRYPOINT ["scripts/demo"]
