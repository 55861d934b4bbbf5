/** What outlives a closed tab. Some browsers keep nothing; `lasting` says so. */
export class Store {
  lasting: boolean;
  private readonly memory = new Map<string, string>();

  constructor() {
    this.lasting = works();
    if (!this.lasting) console.warn("This browser keeps nothing for the page; a closed tab loses its place.");
  }

  read<T>(key: string): T | null {
    const text = this.memory.get(key) ?? (this.lasting ? localStorage.getItem(key) : null);
    if (text === null) return null;
    try {
      return JSON.parse(text) as T;
    } catch {
      return null;
    }
  }

  write(key: string, value: unknown): void {
    const text = JSON.stringify(value);
    this.memory.set(key, text);
    if (!this.lasting) return;
    try {
      localStorage.setItem(key, text);
    } catch (error) {
      console.warn("This browser keeps no more for the page.", error);
      this.lasting = false;
    }
  }

  remove(key: string): void {
    this.memory.delete(key);
    if (this.lasting) localStorage.removeItem(key);
  }
}

function works(): boolean {
  try {
    localStorage.setItem("sottovoce.probe", "1");
    localStorage.removeItem("sottovoce.probe");
    return true;
  } catch {
    return false;
  }
}
