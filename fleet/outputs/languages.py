"""Small grammars, one a language: sentence patterns and the words that fill them. Written for this purpose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Grammar:
    """``patterns`` hold slots ``{n}`` (things), ``{v}`` (doings), ``{a}`` (how), ``{w}`` (where or when), ``{x}`` (a number).

    ``gap`` stands between sentences; ``latin`` says whether the script is Latin.
    """

    patterns: tuple[str, ...]
    n: tuple[str, ...]
    v: tuple[str, ...]
    a: tuple[str, ...]
    w: tuple[str, ...]
    gap: str = " "
    latin: bool = True

    def sentence(self, rng: Random) -> str:
        """One sentence."""
        pick = rng.choice
        return pick(self.patterns).format(
            n=pick(self.n),
            m=pick(self.n),
            v=pick(self.v),
            u=pick(self.v),
            a=pick(self.a),
            w=pick(self.w),
            x=rng.randrange(2, 990),
        )

    def prose(self, rng: Random, chars: int) -> str:
        """Paragraphs of about ``chars`` characters."""
        parts: list[str] = []
        size, here = 0, 0
        turn = rng.randrange(3, 7)
        while size < chars:
            sentence = self.sentence(rng)
            parts.append(sentence)
            size += len(sentence)
            here += 1
            if here >= turn:
                parts.append("\n\n")
                here, turn = 0, rng.randrange(3, 7)
            else:
                parts.append(self.gap)
        return "".join(parts).strip()


ENGLISH = Grammar(
    (
        "The {n} needs to {v} {a} {w}.",
        "If you want to {v}, look at the {n} {w} first.",
        "In most cases {x} of the steps can {v} {a} without touching the {m}.",
        "I would {v} the {n} before the {m}, because it is easier to undo {w}.",
        "A good rule is to {v} {a} and then {u} whatever the {n} still shows.",
        "What matters here is the {n}: it will {v} {a} when the {m} is ready.",
        "You can {v} {w}, but check that the {n} and the {m} agree.",
        "After {x} minutes the {n} usually starts to {v} {a}.",
        "Does the {n} {v} {w}? If not, {u} the {m} and try again.",
        "Keep the {n} small, {v} it {a}, and write down what the {m} did {w}.",
        "There are two ways to {v} the {n}, and the second one lets you {u} {a}.",
        "Thanks for the details about the {n}; they explain why we could not {v} {w}.",
    ),
    (
        "garden", "recipe", "train timetable", "budget", "contract", "violin", "spreadsheet", "kettle", "telescope", "bridge",
        "museum", "bicycle", "harvest", "lesson plan", "coastline", "thermostat", "manuscript", "orchard", "ferry", "password",
        "choir", "pipeline", "backup", "invoice", "glacier", "calendar", "puzzle", "workshop", "vineyard", "lighthouse",
    ),
    (
        "open", "measure", "repair", "compare", "translate", "sort", "plan", "water", "summarise", "rename", "tune", "label",
        "replace", "inspect", "split", "describe", "test", "clean", "postpone", "draw", "explain", "count", "fold", "archive",
    ),
    (
        "carefully", "in small steps", "without a hurry", "by hand", "from left to right", "twice a week", "with a friend",
        "as described above", "at low heat", "in the right order", "more often than you think", "before lunch", "quietly",
    ),
    (
        "in the morning", "near the river", "on the second page", "during winter", "at the end of the month", "behind the hall",
        "next to the window", "before the deadline", "inside the shed", "across the border", "on a rainy day", "at the station",
    ),
)  # fmt: skip

GERMAN = Grammar(
    (
        "Zuerst sollte man {n} {a} {v}.",
        "Wer {n} {v} möchte, braucht {w} etwa {x} Minuten.",
        "Danach lässt sich {m} {a} {v}, ohne {n} zu verändern.",
        "Ich würde {n} {w} {v} und erst dann {m} {u}.",
        "Wichtig ist, dass Sie {n} {a} {v} können.",
        "Falls {n} fehlt, hilft es, {m} {w} zu prüfen und die Größe zu notieren.",
        "In {x} von tausend Fällen muss man {n} {a} {v}.",
        "Könnten Sie {w} kurz {n} {v}? Das würde für später vieles erklären.",
        "Übrigens: {n} und {m} gehören zusammen, deshalb sollte man beide {a} {v}.",
        "Am Schluss bleibt nur noch, {n} {w} zu zählen.",
    ),
    (
        "den Garten", "die Brücke", "das Rezept", "den Fahrplan", "die Rechnung", "das Wörterbuch", "den Ofen", "die Geige",
        "das Gerüst", "den Vertrag", "die Küste", "das Fenster", "den Schlüssel", "die Übersetzung", "das Gemüse", "die Tür",
        "den Kühlschrank", "die Lösung", "das Gerät", "den Bahnhof", "die Straße", "das Archiv", "den Entwurf", "die Prüfung",
    ),
    (
        "öffnen", "messen", "vergleichen", "erklären", "sortieren", "planen", "gießen", "zeichnen", "ersetzen", "prüfen",
        "übersetzen", "ordnen", "beschreiben", "säubern", "verschieben", "zählen", "aufräumen", "benennen", "kürzen",
    ),
    (
        "sorgfältig", "in kleinen Schritten", "ohne Eile", "von Hand", "zweimal täglich", "möglichst früh", "wie oben",
        "bei schwacher Hitze", "der Reihe nach", "gründlich", "gemeinsam", "schriftlich",
    ),
    (
        "am Morgen", "in der Nähe des Flusses", "auf der zweiten Seite", "während des Winters", "am Monatsende", "vor dem Essen",
        "hinter der Halle", "neben dem Fenster", "im Frühjahr", "an der Grenze", "im Schuppen", "vor Ablauf der Frist",
    ),
)  # fmt: skip

SPANISH = Grammar(
    (
        "Primero conviene {v} {n} {a}.",
        "Si quieres {v} {n}, hazlo {w} y espera {x} minutos.",
        "Después se puede {u} {m} sin tocar {n}.",
        "Lo más importante es {v} {n} {a}, sobre todo {w}.",
        "¿Has intentado {v} {n} {w}? Así será más fácil {u} {m}.",
        "En {x} de cada mil casos basta con {v} {m} {a}.",
        "Yo dejaría {n} para mañana y empezaría por {v} {m}.",
        "También es útil {v} {n} {w}, aunque lleve más tiempo.",
        "Según la información que has enviado, hay que {v} {n} antes de {u} {m}.",
        "Además, {n} y {m} están relacionados: conviene {v} ambos {a}.",
    ),
    (
        "el jardín", "la receta", "el puente", "la factura", "el horario", "la canción", "el contrato", "la ventana",
        "el camión", "la traducción", "el balcón", "la habitación", "el archivo", "la biblioteca", "el árbol", "la cosecha",
        "el índice", "la página", "el plan de estudios", "la estación", "el río", "la máquina", "el número", "la lección",
    ),
    (
        "abrir", "medir", "reparar", "comparar", "traducir", "ordenar", "regar", "resumir", "describir", "dibujar", "contar",
        "limpiar", "sustituir", "aplazar", "revisar", "dividir", "probar", "explicar", "anotar",
    ),
    (
        "con cuidado", "paso a paso", "sin prisa", "a mano", "dos veces al día", "en el orden correcto", "a fuego lento",
        "por escrito", "como se indica arriba", "entre dos personas", "cada semana", "con atención",
    ),
    (
        "por la mañana", "cerca del río", "en la segunda página", "durante el invierno", "a fin de mes", "detrás del salón",
        "junto a la ventana", "antes del plazo", "en la estación", "después de comer", "en otoño", "al otro lado de la frontera",
    ),
)  # fmt: skip

FRENCH = Grammar(
    (
        "Il faut d'abord {v} {n} {a}.",
        "Pour {v} {n}, comptez environ {x} minutes {w}.",
        "Ensuite, on peut {u} {m} sans déplacer {n}.",
        "L'essentiel est de {v} {n} {a}, surtout {w}.",
        "Avez-vous déjà essayé de {v} {n} {w} ? Cela aide à {u} {m}.",
        "Dans {x} cas sur mille, il suffit de {v} {m} {a}.",
        "À votre place, je garderais {n} pour plus tard et je commencerais par {v} {m}.",
        "D'après les détails donnés, {n} dépend de {m} : il vaut mieux {v} les deux {a}.",
        "Enfin, n'oubliez pas de {v} {n} {w}.",
    ),
    (
        "le jardin", "la recette", "le pont", "la facture", "l'horaire", "la forêt", "le contrat", "la fenêtre", "le théâtre",
        "la bibliothèque", "le clavier", "la leçon", "le modèle", "la récolte", "l'étagère", "la clé", "le numéro", "la pièce",
        "le chêne", "la première page", "le four", "la carte", "le fichier", "la réponse",
    ),
    (
        "ouvrir", "mesurer", "réparer", "comparer", "traduire", "trier", "arroser", "résumer", "décrire", "dessiner", "compter",
        "nettoyer", "remplacer", "reporter", "vérifier", "partager", "tester", "expliquer", "noter",
    ),
    (
        "avec soin", "par petites étapes", "sans se presser", "à la main", "deux fois par jour", "dans le bon ordre",
        "à feu doux", "par écrit", "comme indiqué ci-dessus", "à plusieurs", "chaque semaine", "en détail",
    ),
    (
        "le matin", "près de la rivière", "à la deuxième page", "pendant l'hiver", "à la fin du mois", "derrière la salle",
        "à côté de la fenêtre", "avant l'échéance", "à la gare", "après le déjeuner", "en été", "de l'autre côté de la frontière",
    ),
)  # fmt: skip

RUSSIAN = Grammar(
    (
        "Сначала нужно {v} {n} {a}.",
        "Чтобы {v} {n}, обычно хватает {x} минут {w}.",
        "Потом можно {u} {m}, не трогая {n}.",
        "Важно {v} {n} {a}, особенно {w}.",
        "Вы уже пробовали {v} {n} {w}? Тогда будет проще {u} {m}.",
        "В {x} случаях из тысячи достаточно {v} {m} {a}.",
        "Я бы оставил {n} на потом и начал с того, чтобы {v} {m}.",
        "Судя по описанию, {n} связано с другим: лучше {v} всё {a}.",
        "Наконец, не забудьте {v} {n} {w}.",
    ),
    (
        "сад", "рецепт", "мост", "счёт", "расписание", "песню", "договор", "окно", "перевод", "библиотеку", "файл", "дерево",
        "урожай", "страницу", "станцию", "машину", "номер", "урок", "печь", "карту", "письмо", "дорогу", "словарь", "задачу",
    ),
    (
        "открыть", "измерить", "починить", "сравнить", "перевести", "упорядочить", "полить", "описать", "нарисовать",
        "посчитать", "очистить", "заменить", "отложить", "проверить", "разделить", "объяснить", "записать", "сократить",
    ),
    (
        "осторожно", "по шагам", "без спешки", "вручную", "дважды в день", "в нужном порядке", "на слабом огне", "письменно",
        "как указано выше", "вдвоём", "каждую неделю", "подробно",
    ),
    (
        "утром", "у реки", "на второй странице", "зимой", "в конце месяца", "за домом", "у окна", "до срока", "на вокзале",
        "после обеда", "летом", "на другом берегу",
    ),
    latin=False,
)  # fmt: skip

CHINESE = Grammar(
    (
        "首先要{a}{v}{n}。",
        "如果想{v}{n}，{w}大约需要{x}分钟。",
        "然后可以{u}{m}，不必改动{n}。",
        "最重要的是{w}{a}{v}{n}。",
        "您试过{w}{v}{n}吗？这样{u}{m}会更容易。",
        "在一千次里有{x}次，只要{v}{m}就够了。",
        "我会先把{n}放在一边，再{v}{m}。",
        "根据您的说明，{n}和{m}有关系，最好一起{v}。",
        "最后别忘了{w}{v}{n}。",
    ),
    (
        "花园", "菜谱", "大桥", "账单", "时间表", "合同", "窗户", "图书馆", "文件", "果树", "课程", "车站", "机器", "地图",
        "信件", "道路", "字典", "作业", "房间", "报告", "音乐会", "照片", "计划", "小船",
    ),
    (
        "打开", "测量", "修理", "比较", "翻译", "整理", "浇水", "描述",
        "画出", "计算", "清洗", "替换", "推迟", "检查", "分开", "说明", "记录",
    ),
    (
        "小心地", "一步一步地", "慢慢地", "用手", "每天两次", "按顺序",
        "用小火", "书面", "如上所述", "两个人一起", "每周", "详细地",
    ),
    (
        "早上", "在河边", "在第二页", "冬天", "月底", "在屋后",
        "在窗边", "在截止日期前", "在车站", "午饭后", "夏天", "在对岸",
    ),
    gap="",
    latin=False,
)  # fmt: skip

JAPANESE = Grammar(
    (
        "まず{n}を{a}{v}必要があります。",
        "{n}を{v}には、{w}およそ{x}分かかります。",
        "その後、{n}に触れずに{m}を{u}ことができます。",
        "大切なのは、{w}{n}を{a}{v}ことです。",
        "{w}{n}を{v}ことを試しましたか。そうすれば{m}を{u}のが楽になります。",
        "千回のうち{x}回は、{m}を{v}だけで十分です。",
        "わたしなら{n}は後にして、先に{m}を{v}でしょう。",
        "説明によると、{n}は{m}と関係があるので、一緒に{v}ほうがいいです。",
        "最後に、{w}{n}を{v}のを忘れないでください。",
    ),
    (
        "庭", "レシピ", "橋", "請求書", "時刻表", "歌", "契約", "窓", "翻訳", "図書館", "ファイル", "木", "ページ", "駅", "機械",
        "番号", "授業", "地図", "手紙", "道", "辞書", "問題", "部屋", "写真",
    ),
    (
        "開ける", "測る", "直す", "比べる", "訳す", "並べる", "描く",
        "数える", "洗う", "替える", "延ばす", "調べる", "分ける", "話す", "書く",
    ),
    (
        "ていねいに", "少しずつ", "ゆっくり", "手で", "一日に二回", "順番に",
        "弱火で", "書面で", "上のとおりに", "二人で", "毎週", "くわしく",
    ),
    (
        "朝に", "川の近くで", "二ページ目で", "冬に", "月末に", "家のうらで",
        "窓のそばで", "しめきりの前に", "駅で", "昼食の後に", "夏に", "向こう岸で",
    ),
    gap="",
    latin=False,
)  # fmt: skip

GRAMMARS: Mapping[str, Grammar] = {
    "en": ENGLISH,
    "de": GERMAN,
    "es": SPANISH,
    "fr": FRENCH,
    "ru": RUSSIAN,
    "zh": CHINESE,
    "ja": JAPANESE,
}
SHARES: Mapping[str, float] = {
    "en": 0.56,
    "de": 0.1,
    "es": 0.09,
    "fr": 0.06,
    "ru": 0.05,
    "zh": 0.08,
    "ja": 0.06,
}
"""How often people write in each language."""
