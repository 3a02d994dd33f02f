"""python3 -m atom.benchmarks.benchmark_serving: the stand-in client."""

from standin.bench import main

if __name__ == "__main__":
    main()
