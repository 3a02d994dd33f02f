"""python3 -m atom.entrypoints.openai_server: the stand-in worker."""

from standin.worker import main

if __name__ == "__main__":
    main()
