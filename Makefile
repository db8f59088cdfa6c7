.DEFAULT_GOAL := help
.PHONY: help demo test lint rust-test python-test typescript-test proto-lint ci-lint build attacks bench chaos clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Build, start a daemon, run the same suites against agents in Python, TypeScript and Rust
	scripts/demo.sh

test: lint proto-lint ci-lint rust-test python-test typescript-test demo ## Set up what the tests need and run all of them

build: ## Build the three programs (target/debug)
	cargo build --locked --bins

lint: ## Formatting, clippy, documentation
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

proto-lint: ## Lint the protocol, and compare it with the released one
	scripts/proto-lint.sh

ci-lint: ## Check the action for GitHub and the pipelines that the documentation shows
	scripts/ci-lint.sh

rust-test: ## Unit, integration and end-to-end tests of the programs
	scripts/setup-python.sh
	scripts/setup-phoenix.sh
	scripts/setup-aimock.sh
	scripts/setup-ci.sh
	cargo test --locked

python-test: ## Tests of the Python client and the sample agents
	scripts/setup-python.sh
	scripts/python-test.sh

typescript-test: ## The TypeScript SDK, and the types for authors of scripts
	scripts/typescript-test.sh

bench: ## Measure: the pure core, and the programs as they are used
	cargo bench --locked

chaos: ## Kill the daemon 200 times during a run of 2,000 cases, and see that nothing is lost
	FORGE_CHAOS_KILLS=200 FORGE_CHAOS_CASES=2000 cargo test --locked --test it -- chaos --nocapture

attacks: ## The long tests: hostile agents, clients, suites and machines, one after the other
	scripts/setup-python.sh
	cargo test --locked --test it -- --ignored --test-threads=1 --nocapture

clean: ## Remove everything that was built or set up
	rm -rf target
